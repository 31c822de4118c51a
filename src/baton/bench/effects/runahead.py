"""X11: one long prompt on two engine processes, the second running on the first one's K/V."""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from baton.bench.effects.effect import Effect
from baton.bench.effects.runahead_child import Bind, Done, Ready, Rows, Start
from baton.bench.effects.split_search import search_split
from baton.bench.steps import ONE_THREAD
from baton.config import ModelConfig
from baton.errors import BatonError
from baton.runtime.clock import now_us
from baton.runtime.dataplane import Arena
from baton.runtime.model_preparation import prepare_model

_LENGTH = 1536
_BLOCK_SIZE = 16
_GRID = 64
"""Attention works on 64 rows at a time; finer splits compute the shared rows twice."""
_COARSE = 6
_SEARCH_ROUNDS, _ROUNDS = 2, 5
_QUIET_SHARE = 0.9
_SPARE_RUNS = 12
"""So many runs in all that something else disturbed are made again."""
DENSE, TRIANGULAR = 0.618, 0.707
"""Best n1/C where attention costs C^2, and where it costs C^2/2, and nothing else costs."""
_TITLE = "Two-process KV-Runahead: where to cut a long prompt"
_ACCEPT = "searched <= equal split TTFT on quiet cores; one result, bit for bit, in all runs"
_T = TypeVar("_T")
_Truth = tuple[int, str, str]


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One way to compute the prompt; medians over interleaved rounds, in milliseconds."""

    name: str
    rows_first: int
    ttft_ms: float
    waited_ms: float
    """How long the second process waited for layers of the first."""
    cpu_share: float
    """What the process that had less of its core had of it, while it computed."""
    n: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One prefill; fields as in Arm."""

    ttft_ms: float
    waited_ms: float
    cpu_share: float


class _Child:
    """One engine process; it ends when its standard input closes."""

    def __init__(self, start: Start) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "baton.bench.effects.runahead_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(start.relay,),
            env={**os.environ, **ONE_THREAD},
        )
        self.say(start)

    def say(self, value: Start | Bind | Rows) -> None:
        """One line to the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(value) + b"\n")
        self._process.stdin.flush()

    def hear(self, kind: type[_T]) -> _T:
        """Its next answer. Raises BatonError when it has ended."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):  # libraries may print too
                return msgspec.json.decode(line, type=kind)
        raise BatonError(f"an engine process ended with exit {self._process.wait()}")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Pair:
    """Two engine processes on two cores over one pool in shared memory."""

    def __init__(self, first: _Child, second: _Child, arena: Arena, relay: int) -> None:
        self.truths: set[_Truth] = set()
        """Token, logits digest and K/V digest of every run so far: there must be only one."""
        self.num_runs = 0
        self._num_spare = _SPARE_RUNS
        self._first, self._second = first, second
        self._arena, self._relay = arena, relay

    def prefill_quiet(self, length: int, rows_first: int) -> Run:
        """The same, again while it was disturbed and runs are left for that."""
        run = self.prefill(length, rows_first)
        while run.cpu_share < _QUIET_SHARE and self._num_spare:
            self._num_spare -= 1
            again = self.prefill(length, rows_first)
            run = max(run, again, key=lambda one: one.cpu_share)
        return run

    def prefill(self, length: int, rows_first: int) -> Run:
        """One prompt; with 0 rows in front the second process computes alone."""
        # No row of an earlier run may stand in for one that was not computed: all bits set is NaN.
        self._arena.buffer[:] = 0xFF
        begun_us = now_us()
        if rows_first:
            self._first.say(Rows(start=0, end=rows_first, length=length, seed=1, tells=True))
        waits = rows_first > 0
        self._second.say(Rows(start=rows_first, end=length, length=length, seed=1, waits=waits))
        ends = [self._second.hear(Done)]
        if rows_first:
            ends.append(self._first.hear(Done))
        for end in ends:
            if end.error:
                raise BatonError(f"a two-process prefill failed: {end.error}")
        last = ends[0]
        self.truths.add((last.token_id, last.logits_digest, last.kv_digest))
        self.num_runs += 1
        return Run(
            ttft_ms=(last.ended_us - begun_us) / 1000,
            waited_ms=last.waited_us / 1000,
            cpu_share=min(end.cpu_share for end in ends),
        )


@contextmanager
def open_pair(model_path: str, model: ModelConfig, length: int) -> Iterator[tuple[Pair, Ready]]:
    """Start both processes for prompts of up to `length` rows."""
    cores = sorted(os.sched_getaffinity(0))
    relay = os.eventfd(0, os.EFD_SEMAPHORE)
    children: list[_Child] = []
    arena: Arena | None = None
    try:
        for core in (cores[0], cores[-1]):
            children.append(
                _Child(
                    Start(
                        model_path=model_path,
                        model=model,
                        block_size=_BLOCK_SIZE,
                        core=core,
                        relay=relay,
                    )
                )
            )
        ready, _ = [child.hear(Ready) for child in children]
        num_blocks = -(-min(length, ready.max_model_len) // ready.block_size) + 1
        arena = Arena.create("runahead", num_blocks * ready.bytes_per_block, epoch=1)
        for child in children:
            child.say(Bind(arena=arena.descriptor, num_blocks=num_blocks))
        yield Pair(children[0], children[1], arena, relay), ready
    finally:
        for child in children:
            child.close()
        if arena is not None:
            arena.close()
        os.close(relay)


async def measure_runahead(model: str, length: int = _LENGTH) -> Effect:
    """Search the best split, then measure it beside the equal one and one process alone."""
    if len(os.sched_getaffinity(0)) < 2:
        return _undecided("two cores are needed, this process may use one")
    path = await prepare_model(model, lambda *_: None)
    config = ModelConfig(name=model, self_test=False)
    with open_pair(str(path), config, length) as (pair, ready):
        length = min(length, ready.max_model_len // 128 * 128)
        if not ready.deterministic:
            return _undecided("this model's bits depend on its batch here")
        for rows_first in (0, length // 2):
            pair.prefill(length, rows_first)
        best, samples = search_split(
            length,
            coarse_stride(length),
            _GRID,
            _SEARCH_ROUNDS,
            lambda split: pair.prefill_quiet(length, split).ttft_ms,
        )
        arms = _arms(pair, length, best)
        return judge_runahead(length, arms, samples, len(pair.truths), pair.num_runs)


def coarse_stride(length: int) -> int:
    """The attention grid, doubled while at least so many strides fit into the prompt."""
    stride = _GRID
    while 2 * stride * _COARSE <= length:
        stride *= 2
    return stride


def _arms(pair: Pair, length: int, best: int) -> dict[str, Arm]:
    """The final comparison: every arm once per round."""
    splits = {
        "alone": 0,
        "equal": length // 2,
        "searched": best,
        "dense": round(DENSE * length / _GRID) * _GRID,
        "triangular": round(TRIANGULAR * length / _GRID) * _GRID,
    }
    samples: dict[int, list[Run]] = {split: [] for split in splits.values()}
    for _ in range(_ROUNDS):
        for split, taken in samples.items():
            taken.append(pair.prefill_quiet(length, split))
    return {
        name: Arm(
            name=name,
            rows_first=split,
            ttft_ms=statistics.median(run.ttft_ms for run in samples[split]),
            waited_ms=statistics.median(run.waited_ms for run in samples[split]),
            cpu_share=statistics.median(run.cpu_share for run in samples[split]),
            n=len(samples[split]),
        )
        for name, split in splits.items()
    }


def judge_runahead(
    length: int,
    arms: dict[str, Arm],
    samples: dict[int, list[float]],
    num_truths: int,
    num_runs: int,
) -> Effect:
    """The searched split against the equal one; one truth in all runs."""
    alone, equal, best = arms["alone"], arms["equal"], arms["searched"]
    others = ", ".join(
        f"{arm.rows_first / length:.3f} ({name}) {arm.ttft_ms / alone.ttft_ms:.3f}"
        for name, arm in arms.items()
        if name in ("dense", "triangular")
    )
    share = min(arm.cpu_share for arm in arms.values())
    quiet = share >= _QUIET_SHARE
    cores = "quiet" if quiet else f"DISTURBED (had {share:.0%} of a core)"
    grid = {split: statistics.median(times) for split, times in sorted(samples.items())}
    return Effect(
        id="X11",
        title=_TITLE,
        measured=(
            f"{length} rows, TTFT alone {alone.ttft_ms:.0f} ms; of it: equal split (KVR-E) "
            f"{equal.ttft_ms / alone.ttft_ms:.3f}, searched (KVR-S) n1/C "
            f"{best.rows_first / length:.3f} {best.ttft_ms / alone.ttft_ms:.3f}, {others}; "
            f"searched/equal {best.ttft_ms / equal.ttft_ms:.3f} (medians of {best.n} interleaved "
            f"rounds, {len(grid)} splits searched, cores {cores}); "
            f"{num_truths} distinct token, logits and K/V digest in {num_runs} runs; theory of "
            f"attention alone: {DENSE} dense, {TRIANGULAR} triangular"
        ),
        accept=_ACCEPT,
        met=False if num_truths != 1 else best.ttft_ms <= equal.ttft_ms if quiet else None,
        figures={
            "num_rows": length,
            "best_share": best.rows_first / length,
            "arms": list(arms.values()),
            "searched_ms": {str(split): time_ms for split, time_ms in grid.items()},
            "num_truths": num_truths,
            "num_runs": num_runs,
        },
    )


def _undecided(reason: str) -> Effect:
    return Effect(
        id="X11",
        title=_TITLE,
        measured=reason,
        accept=_ACCEPT,
        met=None,
    )
