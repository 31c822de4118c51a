"""Measured constants of one worker, smoothed: step costs and transfer bandwidth."""

from baton.core.events import ChunkMoved
from baton.core.snapshot import Rates
from baton.core.work import Batch, BatchResult

_WEIGHT = 0.2


class Ratio:
    """Smoothed numerator over smoothed denominator, so that small samples weigh little."""

    def __init__(self, initial: float, weight: float) -> None:
        self._above = initial * weight
        self._below = weight if initial else 0.0

    def observe(self, above: float, below: float) -> None:
        """One more sample."""
        if not self._below:
            self._above, self._below = above, below
            return
        self._above += _WEIGHT * (above - self._above)
        self._below += _WEIGHT * (below - self._below)

    @property
    def value(self) -> float:
        """The smoothed ratio; 0 until there is a sample."""
        return self._above / self._below if self._below else 0.0


class RateMeter:
    """Moving averages; transfer and prefill constants start from the host's own measurement."""

    def __init__(self, initial: Rates) -> None:
        self._prefill = Ratio(initial.prefill_us_per_token, 64.0)
        self._decode = Ratio(initial.decode_step_us, 1.0)
        self._transfer = Ratio(initial.transfer_bytes_per_us, 100.0)
        self._overhead_us = initial.transfer_overhead_us
        self._run_us = initial.transfer_run_us

    def step(self, result: BatchResult, batch: Batch) -> None:
        """Learn from a phase-pure step; a mixed one says nothing about either phase alone."""
        if result.error or not result.duration_us:
            return
        num_decodes = sum(item.start >= item.num_prompt_tokens for item in batch.items)
        if num_decodes == 0:
            self._prefill.observe(result.duration_us, batch.num_rows)
        elif num_decodes == len(batch.items):
            self._decode.observe(result.duration_us, 1.0)

    def moved(self, event: ChunkMoved) -> None:
        """Learn the bandwidth: the plane's durations are the copy alone."""
        if not event.error and event.duration_us:
            self._transfer.observe(event.nbytes, event.duration_us)

    def rates(self) -> Rates:
        """The current constants."""
        return Rates(
            prefill_us_per_token=self._prefill.value,
            decode_step_us=self._decode.value,
            transfer_bytes_per_us=self._transfer.value,
            transfer_overhead_us=self._overhead_us,
            transfer_run_us=self._run_us,
        )
