"""Which CPU cores a worker gets, and what its libraries are told about threads."""

import os

from baton.config import BatonConfig
from baton.errors import ConfigError
from baton.runtime.notice import notice

_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_SPIN_COUNT = "2000"
"""Rounds (some 10 us) that an OpenMP thread waits awake; then it sleeps and leaves its core.

The library's own limit is milliseconds. Beside one other busy process such a wait keeps the core
from the very thread that it waits for: steps become up to ten times slower, with this bound twice.
"""


def share_cores(count: int, threads: int = 1) -> list[tuple[int, ...]]:
    """Give each of `count` workers `threads` cores of its own.

    Workers of one thread share the cores round-robin when there are too few; workers of several
    threads must not, because each step would wait for the slowest: that raises ConfigError.
    """
    cores = sorted(os.sched_getaffinity(0))
    if not cores:
        raise ConfigError("cluster: no CPU core is available to this process")
    if threads == 1:
        return [(cores[index % len(cores)],) for index in range(count)]
    if count * threads > len(cores):
        raise ConfigError(
            f"{_need(count, threads)}, {len(cores)} available; "
            "use fewer threads or workers, or cluster.pin_cores=false to share cores unpinned"
        )
    return [tuple(cores[i * threads : (i + 1) * threads]) for i in range(count)]


def worker_cores(config: BatonConfig) -> list[tuple[int, ...]]:
    """The cores of each worker in start order; empty tuples without pinning."""
    count = len(config.cluster.roles)
    return share_cores(count, config.worker.threads) if config.cluster.pin_cores else [()] * count


def check_cores(config: BatonConfig) -> None:
    """Raise ConfigError when pinned threads do not fit this machine; say so of unpinned ones."""
    worker_cores(config)
    count, threads = len(config.cluster.roles), config.worker.threads
    available = len(os.sched_getaffinity(0))
    if threads > 1 and count * threads > available:
        notice("cluster", f"{_need(count, threads)}, {available} available; steps will be slow")


def _need(count: int, threads: int) -> str:
    workers = f"{count} worker{'s' if count > 1 else ''}"
    return f"worker.threads: {workers} of {threads} threads need {count * threads} cores"


def thread_environment(threads: int) -> dict[str, str]:
    """Environment of a process that computes with `threads` threads."""
    environment = dict.fromkeys(_COUNTS, str(threads))
    if threads > 1:
        environment["GOMP_SPINCOUNT"] = os.environ.get("GOMP_SPINCOUNT", _SPIN_COUNT)
    return environment
