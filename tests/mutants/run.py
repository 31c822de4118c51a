"""Runs mutants side by side, each in a process of its own and within a time bound.

The processes are forked from this one, which has imported what is not ours already: most of a
mutant's time would go into that otherwise. Nothing of baton may be imported here.
"""

import importlib
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tests.mutants.hunting import Verdict, judge

TIMEOUT_S = 60
_ENDING = (signal.SIGINT, signal.SIGTERM)
_FORK = get_context("fork")
_WARM = ("cryptography.hazmat.primitives.hmac", "hypothesis.strategies", "numpy", "pytest")


def run(
    names: Sequence[str],
    *,
    jobs: int = 0,
    timeout_s: float = TIMEOUT_S,
    progress: Callable[[Verdict], None] = lambda verdict: None,
) -> list[Verdict]:
    """A verdict for each name, in their order."""
    ours = sorted(name for name in sys.modules if name.partition(".")[0] == "baton")
    assert not ours, f"imported before anything was planted: {ours}"
    for name in _WARM:
        importlib.import_module(name)
    cores = len(os.sched_getaffinity(0))
    jobs = min(jobs or cores, 2 * cores)
    waiting, running, found = deque(names), dict[Connection, _Hunt](), dict[str, Verdict]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                hunt = _Hunt(waiting.popleft(), timeout_s)
                running[hunt.pipe] = hunt
            bound_s = min(hunt.end_s for hunt in running.values()) - time.monotonic()
            ready = wait(list(running), timeout=max(0.0, bound_s))
            for pipe, hunt in list(running.items()):
                if pipe in ready or time.monotonic() >= hunt.end_s:
                    verdict = found[hunt.name] = hunt.end()
                    del running[pipe]
                    progress(verdict)
    finally:
        for hunt in running.values():
            hunt.kill()
    return [found[name] for name in names]


class _Hunt:
    """One process with one mutant."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.name, self._timeout_s = name, timeout_s
        self.end_s = time.monotonic() + timeout_s
        self.pipe, theirs = _FORK.Pipe(duplex=False)
        self._process: BaseProcess = _FORK.Process(target=_judge, args=(name, theirs), daemon=True)
        # Until the child has its own answer to these, they would meet the parent's in it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        self._process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        theirs.close()

    def end(self) -> Verdict:
        """What the process says, or why it says nothing."""
        fault, seconds = f"error: no verdict in {self._timeout_s:g} s", self._timeout_s
        try:
            if self.pipe.poll():
                verdict: Verdict = self.pipe.recv()
                return verdict
        except EOFError:
            fault, seconds = "error: its process ended without a verdict", 0.0
        finally:
            self.kill()
        return Verdict(name=self.name, fault=fault, seconds=seconds)

    def kill(self) -> None:
        """End the process, whatever it was about to say."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _judge(name: str, pipe: Connection) -> None:
    # Ctrl-C reaches this process too: it ends without a word, and its parent says one for all.
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    try:
        pipe.send(judge(name))
    except BaseException:  # whatever it was, it is this mutant's and must not look like silence
        text = traceback.format_exc().strip().splitlines()
        pipe.send(Verdict(name=name, fault=f"error: {text[-1]} {' '.join(text[-3:-1]).strip()}"))
