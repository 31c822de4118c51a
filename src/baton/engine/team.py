"""Threads that share the rows of one kernel call; kernels release the GIL while they run."""

import itertools
import queue
import threading
import weakref
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]
Work = Callable[[int, int], None]


class Team:
    """`num_threads` threads, the caller's included.

    Plain threads and not a second OpenMP team: between calls they sleep, so they never spin on a
    core that the matrix products want, and each runs the very machine code that one thread would.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._inboxes = [_start(self._ended) for _ in range(num_threads - 1)]
        weakref.finalize(self, _dismiss, self._inboxes)

    def run(self, spans: Sequence[Span], work: Work) -> None:
        """Call `work(first, last)` for each of at most `num_threads` spans at once.

        Returns when all have ended, and raises what one of them raised.
        """
        first, *others = spans
        for inbox, span in zip(self._inboxes, others, strict=False):
            inbox.put((work, span))
        error: BaseException | None = None
        try:
            work(*first)
        finally:
            # Even when ours failed: the others still write to the caller's arrays.
            for _ in others:
                error = self._ended.get() or error
        if error is not None:
            raise error


_Inbox = queue.SimpleQueue[tuple[Work, Span] | None]


def _start(ended: "queue.SimpleQueue[BaseException | None]") -> _Inbox:
    inbox: _Inbox = queue.SimpleQueue()
    threading.Thread(target=_help, args=(inbox, ended), name="engine-team", daemon=True).start()
    return inbox


def _help(inbox: _Inbox, ended: "queue.SimpleQueue[BaseException | None]") -> None:
    while (task := inbox.get()) is not None:
        work, span = task
        error: BaseException | None = None
        try:
            work(*span)
        except BaseException as raised:
            error = raised
        del task, work  # a sleeping thread keeps no tensors alive
        ended.put(error)


def _dismiss(inboxes: Sequence[_Inbox]) -> None:
    for inbox in inboxes:
        inbox.put(None)


def even_spans(count: int, parts: int) -> list[Span]:
    """`count` rows in at most `parts` spans of nearly the same length, none empty."""
    parts = min(parts, count)
    edges = [count * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def weighted_spans(weights: NDArray[np.int64], parts: int) -> list[Span]:
    """Neighbouring rows in at most `parts` spans of nearly the same weight, none empty."""
    sums = np.cumsum(weights)
    goals = sums[-1] * np.arange(1, parts) / parts
    # A row belongs where its middle falls.
    cuts = np.searchsorted(sums - weights / 2, goals).tolist()
    edges = sorted({0, *cuts, len(weights)})
    return list(itertools.pairwise(edges))
