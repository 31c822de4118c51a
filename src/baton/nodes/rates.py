"""Measured constants of one worker, smoothed: step costs and transfer bandwidth."""

from baton.core.events import ChunkMoved
from baton.core.snapshot import Rates
from baton.core.work import Batch, BatchResult

_WEIGHT = 0.2


def _smooth(old: float, new: float) -> float:
    return new if old == 0 else old + _WEIGHT * (new - old)


class RateMeter:
    """Exponentially weighted means; transfer constants start from the host's calibration."""

    def __init__(self, initial: Rates) -> None:
        self._prefill_us_per_token = initial.prefill_us_per_token
        self._decode_step_us = initial.decode_step_us
        self._bytes_per_us = initial.transfer_bytes_per_us
        self._overhead_us = initial.transfer_overhead_us

    def step(self, result: BatchResult, batch: Batch) -> None:
        """Learn from a phase-pure step; a mixed one says nothing about either phase alone."""
        if result.error or not result.duration_us:
            return
        num_decodes = sum(item.start >= item.num_prompt_tokens for item in batch.items)
        if num_decodes == 0:
            per_token = result.duration_us / batch.num_rows
            self._prefill_us_per_token = _smooth(self._prefill_us_per_token, per_token)
        elif num_decodes == len(batch.items):
            self._decode_step_us = _smooth(self._decode_step_us, result.duration_us)

    def moved(self, event: ChunkMoved) -> None:
        """Learn the bandwidth from a chunk large enough for the payload to dominate."""
        payload_us = event.duration_us - self._overhead_us
        if not event.error and payload_us > self._overhead_us:
            self._bytes_per_us = _smooth(self._bytes_per_us, event.nbytes / payload_us)

    def rates(self) -> Rates:
        """The current constants."""
        return Rates(
            prefill_us_per_token=self._prefill_us_per_token,
            decode_step_us=self._decode_step_us,
            transfer_bytes_per_us=self._bytes_per_us,
            transfer_overhead_us=self._overhead_us,
        )
