"""How far predictions are from a run, in the figures that such runs are compared by."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """One number of a run: a statistic of a column."""

    name: str
    column: str
    of: Callable[[Floats], float]


def _mean(values: Floats) -> float:
    return float(np.mean(values))


def _quantile(share: float) -> Callable[[Floats], float]:
    return lambda values: float(np.quantile(values, share))


FIGURES = (
    Figure("TTFT mean", "ttft_ms", _mean),
    Figure("TTFT median", "ttft_ms", _quantile(0.5)),
    Figure("TTFT P99", "ttft_ms", _quantile(0.99)),
    Figure("TPOT mean", "tpot_ms", _mean),
    Figure("TPOT P99", "tpot_ms", _quantile(0.99)),
    Figure("latency mean", "latency_ms", _mean),
)


@dataclass(frozen=True, kw_only=True)
class Error:
    """Of one figure; percent where it was measured."""

    name: str
    predicted_ms: float
    measured_ms: float | None

    @property
    def percent(self) -> float | None:
        """Above 0: predicted longer than it took."""
        if self.measured_ms is None:
            return None
        return 100.0 * (self.predicted_ms / self.measured_ms - 1.0)


def compare(predicted: dict[str, Floats], measured: dict[str, Floats]) -> list[Error]:
    """Every figure; a request without one (an answer of one token has no TPOT) is left out."""
    errors = []
    for figure in FIGURES:
        found = predicted[figure.column]
        truth = measured.get(figure.column)
        errors.append(
            Error(
                name=figure.name,
                predicted_ms=figure.of(found[np.isfinite(found)]),
                measured_ms=None if truth is None else figure.of(truth[np.isfinite(truth)]),
            )
        )
    return errors
