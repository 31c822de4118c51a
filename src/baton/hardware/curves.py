"""What one engine step costs, as curves: the form that every predictor is lowered to.

A step holds prefill chunks and decode rows. Its time depends on sums alone, so that a simulator
asks for it in constant time whatever the batch:

    T  prefill rows        B  decode rows        S  tokens that the decode rows see, themselves too
    of each chunk: n rows after v visible ones; pairs = n v + n (n + 1) / 2; gathered = v + n

Units: microseconds, tokens, sequences.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from baton.errors import ConfigError
from baton.hardware.evaluate import (
    DECODE_GRID,
    GROUP_ROWS,
    MIXED_DECODE,
    MIXED_ROWS,
    PREFILL_ATTENTION,
    PREFILL_ROWS,
    ROWS,
    Floats,
    Packed,
    Packer,
    step_us,
)
from baton.policy.phase_cost import PrefillRows


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A piecewise-linear curve; below the first and above the last knot its end pieces go on.

    One knot is a constant.
    """

    knots: tuple[float, ...]
    values_us: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_knots("knots", self.knots)
        if len(self.values_us) != len(self.knots):
            raise ConfigError(
                f"curve: {len(self.values_us)} values for {len(self.knots)} knots; give one each"
            )
        _check_finite("values_us", self.values_us)


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A bilinear surface over x and y, row by row of x; beyond its edges the end cells go on."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    values_us: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        _check_knots("x", self.x)
        _check_knots("y", self.y)
        if len(self.values_us) != len(self.x) or any(
            len(row) != len(self.y) for row in self.values_us
        ):
            raise ConfigError(f"grid: values must be {len(self.x)} rows of {len(self.y)}")
        for row in self.values_us:
            _check_finite("values_us", row)


class StepSide(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of terms; those of prefill count when T > 0, those of decode when B > 0.

    `rows` is over T + B (what both phases share: linear layers, collectives), `prefill_rows` over
    T, `prefill_attention` over (n, v) of each chunk, `decode_grid` over (B, S / B). A kernel that
    takes both phases in one launch costs more than its parts: `mixed_decode` stands in for
    `decode_grid` in a step with prefill rows, and `mixed_rows` over (T, B) is added then.
    """

    step_us: float = 0.0
    rows: Line | None = None
    prefill_us: float = 0.0
    prefill_rows: Line | None = None
    prefill_attention: Grid | None = None
    chunk_us: float = 0.0
    pair_us: float = 0.0
    gathered_us: float = 0.0
    decode_us: float = 0.0
    decode_row_us: float = 0.0
    decode_token_us: float = 0.0
    """For each of S."""
    decode_grid: Grid | None = None
    mixed_rows: Grid | None = None
    mixed_decode: Grid | None = None
    group_rows: Line | None = None
    """Over rows of all workers that step together: what they share, as experts over all of them.

    Of one-sided curves alone."""

    def __post_init__(self) -> None:
        for name in _CONSTANTS:
            _check_finite(name, (getattr(self, name),))

    def pack(self, packer: Packer, number: int) -> None:
        """As this side of a set of curves."""
        lines = {
            ROWS: self.rows,
            PREFILL_ROWS: self.prefill_rows,
            GROUP_ROWS: self.group_rows,
        }
        grids = {
            PREFILL_ATTENTION: self.prefill_attention,
            DECODE_GRID: self.decode_grid,
            MIXED_ROWS: self.mixed_rows,
            MIXED_DECODE: self.mixed_decode,
        }
        packer.add_side(
            number,
            [getattr(self, name) for name in _CONSTANTS],
            {place: (one.knots, one.values_us) for place, one in lines.items() if one},
            {place: (one.x, one.y, one.values_us) for place, one in grids.items() if one},
        )


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """How far the source was measured; a step beyond any bound is extrapolated and counted so.

    Infinite where the source is a formula.
    """

    max_rows: float = math.inf
    """T + B."""
    max_visible: float = math.inf
    """v + n of a chunk."""
    max_decodes: float = math.inf
    max_context: float = math.inf
    """S / B."""


class StepCurves(msgspec.Struct, frozen=True, kw_only=True):
    """The longest of one or two sides (a roofline has two), of one worker with all its GPUs.

    With `pipeline` stages the sides are the time of one stage: a step leaves after `pipeline`
    times that long, and another one may enter after one.
    """

    sides: tuple[StepSide, ...]
    source: str
    """Predictor, its files and what they were measured on, for reports."""
    mixed_factor: float = 1.0
    """Of a step with both kinds of rows."""
    mixed_as_prefill: bool = False
    """Such a step costs what T + B prefill rows do, and no decode terms (Splitwise)."""
    pipeline: int = 1
    domain: Domain = Domain()
    is_extrapolated: bool = False
    """Some cell that was asked for was not measured; `source` says which."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.sides) <= 2:
            raise ConfigError(f"curves: {len(self.sides)} sides; give one or two")
        if len(self.sides) > 1 and any(side.group_rows for side in self.sides):
            raise ConfigError("curves: group_rows is of one side alone; give one side")
        if self.pipeline < 1:
            raise ConfigError(f"curves: pipeline {self.pipeline}; at least 1 stage")
        _check_finite("mixed_factor", (self.mixed_factor,))

    def packed(self) -> Packed:
        """As an array, for compiled loops."""
        domain = self.domain
        packer = Packer(
            (
                len(self.sides),
                self.mixed_factor,
                self.mixed_as_prefill,
                self.pipeline,
                domain.max_rows,
                domain.max_visible,
                domain.max_decodes,
                domain.max_context,
            )
        )
        for number, side in enumerate(self.sides):
            side.pack(packer, number)
        return packer.packed()

    def step_us(self, prefills: Sequence[PrefillRows], visible_lengths: Sequence[int]) -> float:
        """Time of one stage of one step; a step without rows takes none."""
        return float(
            step_us(
                self.packed(),
                *chunk_arrays(prefills),
                len(visible_lengths),
                float(sum(visible_lengths)),
            )
        )


_CONSTANTS = (
    "step_us",
    "prefill_us",
    "chunk_us",
    "pair_us",
    "gathered_us",
    "decode_us",
    "decode_row_us",
    "decode_token_us",
)


def chunk_arrays(prefills: Sequence[PrefillRows]) -> tuple[Floats, Floats, int]:
    """Rows and visible rows of chunks as `evaluate.step_us` takes them, and how many there are."""
    rows = np.array([one.num_rows for one in prefills], np.float64)
    visible = np.array([one.num_visible for one in prefills], np.float64)
    return rows, visible, len(prefills)


def _check_knots(name: str, knots: Sequence[float]) -> None:
    if not knots:
        raise ConfigError(f"curve: {name} is empty; give at least one knot")
    _check_finite(name, knots)
    if any(b <= a for a, b in pairwise(knots)):
        raise ConfigError(f"curve: {name} must ascend strictly")


def _check_finite(name: str, values: Sequence[float]) -> None:
    for value in values:
        if not math.isfinite(value):
            raise ConfigError(f"curve: {name} holds {value}; every number must be finite")
