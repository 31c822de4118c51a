"""What one moved chunk costs its worker's event loop, in processor time, measured while serving."""

import time

_WEIGHT = 0.3
_MANY = 4
"""Chunks of a request from which on they, and not its other messages, are most of the work."""


class ChunkCost:
    """Splits the loop's time of each interval into idle upkeep, requests and chunks.

    A chunk is an order, its completion, the credit that comes back for it and, by the layer
    schedule, the engine's word that the layer is ready; together that is far more than the order
    itself, and on a pinned core the prompt's own step stands still for it. Intervals with many
    chunks of each request tell the cost of a chunk, those with one at most that of a request.
    """

    def __init__(self) -> None:
        self.chunk_us = 0.0
        """0 until a transfer in many chunks was seen."""
        self._idle_us = 0.0
        self._request_us = 0.0

    def observe(self, busy_us: float, num_requests: int, num_chunks: int) -> None:
        """Learn from one interval of the loop."""
        if not num_requests and not num_chunks:
            self._idle_us += _WEIGHT * (busy_us - self._idle_us)
            return
        left_us = busy_us - self._idle_us
        if num_chunks >= _MANY * max(1, num_requests):
            seen_us = max(0.0, left_us - num_requests * self._request_us) / num_chunks
            weight = _WEIGHT if self.chunk_us else 1.0
            self.chunk_us += weight * (seen_us - self.chunk_us)
        elif num_chunks <= num_requests:
            seen_us = max(0.0, left_us - num_chunks * self.chunk_us) / num_requests
            weight = _WEIGHT if self._request_us else 1.0
            self._request_us += weight * (seen_us - self._request_us)


class LoopTime:
    """Counts what the loop does between heartbeats; used by the loop's own thread alone."""

    def __init__(self) -> None:
        self.num_requests = 0
        self.num_chunks = 0
        self._cost = ChunkCost()
        self._since_s = time.thread_time()

    def chunk_us(self) -> float:
        """End an interval; the cost of one chunk by all that was seen so far."""
        now_s = time.thread_time()
        self._cost.observe(1e6 * (now_s - self._since_s), self.num_requests, self.num_chunks)
        self.num_requests = self.num_chunks = 0
        self._since_s = now_s
        return self._cost.chunk_us
