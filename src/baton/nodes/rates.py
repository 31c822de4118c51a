"""Measured constants of one worker, smoothed: step costs and transfer bandwidth."""

from baton.core.events import ChunkMoved
from baton.core.snapshot import Rates
from baton.core.work import Batch, BatchResult

_WEIGHT = 0.2
_KEPT = 0.95
"""Share of what was learned that a further step leaves."""
_LEAST_SPREAD = 1e-3
"""Below this share of its square, a spread is taken for rounding and noise."""


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


class _Line:
    """Decayed least squares of a duration over one count: what one more of it adds."""

    def __init__(self) -> None:
        self._sums = [0.0] * 5

    def observe(self, count: float, duration_us: float) -> None:
        new = (1.0, count, duration_us, count * count, count * duration_us)
        self._sums = [_KEPT * old + value for old, value in zip(self._sums, new, strict=True)]

    @property
    def slope(self) -> float:
        """Never negative; 0 until counts have differed enough to show it."""
        weight, count, duration, squares, products = self._sums
        spread = squares * weight - count * count
        if spread <= _LEAST_SPREAD * squares * weight:
            return 0.0
        return max(0.0, (products * weight - count * duration) / spread)


class _Plane:
    """Decayed least squares of a duration over rows and causal pairs, through the origin."""

    def __init__(self) -> None:
        self._sums = [0.0] * 5

    def observe(self, rows: float, pairs: float, duration_us: float) -> None:
        new = (rows * rows, rows * pairs, pairs * pairs, rows * duration_us, pairs * duration_us)
        self._sums = [_KEPT * old + value for old, value in zip(self._sums, new, strict=True)]

    def solve(self) -> tuple[float, float] | None:
        """Microseconds of a row and of a pair, none negative; None where they do not show apart."""
        rows, both, pairs, by_rows, by_pairs = self._sums
        spread = rows * pairs - both * both
        if spread <= _LEAST_SPREAD * rows * pairs:
            return None
        per_row = (by_rows * pairs - by_pairs * both) / spread
        per_pair = (by_pairs * rows - by_rows * both) / spread
        if per_pair <= 0.0:
            return None
        return (per_row, per_pair) if per_row > 0.0 else (0.0, by_pairs / pairs)


class RateMeter:
    """Moving averages; transfer and prefill constants start from the host's own measurement."""

    def __init__(self, initial: Rates) -> None:
        self._prefill = Ratio(initial.prefill_us_per_token, 64.0)
        self._prefill_parts = _Plane()
        self._batch = _Line()
        self._decode = Ratio(initial.decode_step_us, 1.0)
        self._transfer = Ratio(initial.transfer_bytes_per_us, 100.0)
        self._overhead_us = initial.transfer_overhead_us
        self._run_us = initial.transfer_run_us
        self._digest_bytes_per_us = initial.digest_bytes_per_us

    def step(self, result: BatchResult, batch: Batch) -> None:
        """Learn from a phase-pure step; a mixed one says nothing about either phase alone."""
        if result.error or not result.duration_us:
            return
        num_decodes = sum(item.start >= item.num_prompt_tokens for item in batch.items)
        if num_decodes == 0:
            self._prefill.observe(result.duration_us, batch.num_rows)
            self._prefill_parts.observe(batch.num_rows, _causal_pairs(batch), result.duration_us)
        elif num_decodes == len(batch.items):
            self._decode.observe(result.duration_us, 1.0)
            self._batch.observe(num_decodes, result.duration_us)

    def moved(self, event: ChunkMoved) -> None:
        """Learn the bandwidth: the plane's durations are the copy alone."""
        if not event.error and event.duration_us:
            self._transfer.observe(event.nbytes, event.duration_us)

    def rates(self) -> Rates:
        """The current constants.

        Where pairs do not show, a row's cost is the mean of all that steps took.
        """
        parts = self._prefill_parts.solve()
        if parts is None:
            parts = (self._prefill.value, 0.0)
        return Rates(
            prefill_us_per_token=parts[0],
            prefill_us_per_pair=parts[1],
            decode_step_us=self._decode.value,
            decode_us_per_sequence=self._batch.slope,
            transfer_bytes_per_us=self._transfer.value,
            transfer_overhead_us=self._overhead_us,
            transfer_run_us=self._run_us,
            digest_bytes_per_us=self._digest_bytes_per_us,
        )


def _causal_pairs(batch: Batch) -> int:
    """Each row meets every row up to itself."""
    return sum(
        (rows := len(item.token_ids)) * item.start + rows * (rows + 1) // 2 for item in batch.items
    )
