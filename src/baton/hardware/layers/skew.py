"""Decode rows with uneven K/V: a layer takes longer than with the mean length for every row.

A profile gives `alpha` by batch: t = t(mean) + alpha (t(longest) - t(mean)). It depends on the
longest and shortest sequence of the batch, which a loop with constant work per step does not know.
So the lengths of the workload are used once: a batch of n rows drawn from them has a certain
longest and shortest row in proportion to its mean, and alpha of that enters the decode surface.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.hardware.layers.files import number, read_rows

Ints = NDArray[np.int64]
_UNITS = {"k": 1024, "m": 1024 * 1024}
_NUM_SHARES, _MAX_REQUESTS = 128, 4096
"""Moments of a request's life, and requests, that stand for all."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """K/V lengths that a decode row has over its life, as quantiles in proportion to the mean."""

    quantiles: tuple[float, ...]

    def shortest(self, num_rows: int) -> float:
        """Expected of so many rows, in proportion to their mean."""
        return self._at(1.0 / (num_rows + 1.0))

    def longest(self, num_rows: int) -> float:
        """Expected of so many rows, in proportion to their mean."""
        return self._at(num_rows / (num_rows + 1.0))

    def _at(self, share: float) -> float:
        places = np.linspace(0.0, 1.0, len(self.quantiles))
        return float(np.interp(share, places, self.quantiles))


def spread_of(num_prompt: Ints, num_output: Ints, num_quantiles: int = 257) -> Spread:
    """A request shows every length from its prompt's to its whole one, each for one step."""
    if len(num_prompt) == 0:
        raise ConfigError("spread: no requests")
    every = -(-len(num_prompt) // _MAX_REQUESTS)
    prompts, outputs = np.asarray(num_prompt)[::every], np.asarray(num_output)[::every]
    shares = (np.arange(_NUM_SHARES) + 0.5) / _NUM_SHARES
    lengths = prompts[:, None] + outputs[:, None] * shares
    weights = np.broadcast_to(outputs[:, None] / _NUM_SHARES, lengths.shape)
    order = np.argsort(lengths, axis=None)
    sorted_lengths, sorted_weights = lengths.ravel()[order], weights.ravel()[order]
    below = (np.cumsum(sorted_weights) - 0.5 * sorted_weights) / sorted_weights.sum()
    quantiles = np.interp(np.linspace(0.0, 1.0, num_quantiles), below, sorted_lengths)
    mean = float((sorted_lengths * sorted_weights).sum() / sorted_weights.sum())
    return Spread(quantiles=tuple((quantiles / mean).tolist()))


class Skew:
    """Alpha of decode-only batches, by bucket of (rows, where the mean lies, longest row)."""

    def __init__(self, alphas: dict[tuple[float, float, float], float]) -> None:
        self._alphas = alphas
        self._bounds = tuple(sorted({key[axis] for key in alphas}) for axis in range(3))

    def alpha(self, num_rows: int, mean_share: float, longest: float) -> float:
        """0 where no such batch was measured; `mean_share` is (mean - least) / (most - least)."""
        asked = (float(num_rows), mean_share, longest)
        key = tuple(
            next((bound for bound in bounds if value <= bound), bounds[-1])
            for bounds, value in zip(self._bounds, asked, strict=True)
        )
        return self._alphas.get((key[0], key[1], key[2]), 0.0)

    def corrected_us(
        self, of_length_us: Callable[[float], float], num_rows: int, mean: float, spread: Spread
    ) -> float:
        """Of a layer with so many decode rows, from its time with equal lengths."""
        even_us = of_length_us(mean)
        low, high = spread.shortest(num_rows), spread.longest(num_rows)
        if num_rows < 2 or not low < 1.0 < high:
            return even_us
        alpha = self.alpha(num_rows, (1.0 - low) / (high - low), mean * high)
        return max(0.0, even_us + alpha * (of_length_us(mean * high) - even_us))


def read_skew(path: Path) -> Skew | None:
    """None where the folder has no such table."""
    if not path.exists() and not path.with_name(path.name + ".gz").exists():
        return None
    alphas = {
        (
            _bound(path, row, "n_label"),
            _bound(path, row, "skew_rate_label"),
            _bound(path, row, "kv_big_label"),
        ): number(path, row, "alpha")
        for row in read_rows(path)
        if number(path, row, "pc") == 0
    }
    return Skew(alphas) if alphas else None


def _bound(path: Path, row: dict[str, str], column: str) -> float:
    """Upper bound of a bucket from its label: "n<=128", "sr<=15%", "kvB<=4k", "sr>70%"."""
    label = row.get(column) or ""
    _, sign, text = label.partition("<=")
    if not sign:
        return float("inf") if ">" in label else _refuse(path, column, label)
    scale = 0.01 if text.endswith("%") else _UNITS.get(text[-1:].lower(), 1)
    try:
        return float(text.rstrip("%kKmM")) * scale
    except ValueError:
        return _refuse(path, column, label)


def _refuse(path: Path, column: str, label: str) -> float:
    raise ConfigError(f"{path}: {column} is {label!r}; a bound such as n<=128 is needed")
