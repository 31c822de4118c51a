"""The net margin over two axes of cells."""

from collections.abc import Sequence

import msgspec

from baton.errors import ConfigError
from baton.planner.margin.cell import Cell
from baton.planner.margin.measure import CellMargin, MarginAsk, Side, net_margin
from baton.planner.placement.waves import in_waves
from baton.sim.fast.workload import FastWorkload


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """A field of `Cell` and its values."""

    field: str
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.field not in Cell.__struct_fields__:
            raise ConfigError(
                f"axis {self.field!r} is not known; use one of {', '.join(Cell.__struct_fields__)}"
            )
        if not self.values:
            raise ConfigError(f"axis {self.field}: no values; give at least one")


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """Cells row by row of y."""

    x: Axis
    y: Axis
    cells: tuple[tuple[CellMargin, ...], ...]

    @property
    def deltas_us(self) -> tuple[tuple[float, ...], ...]:
        """The margins alone, for drawing."""
        return tuple(tuple(one.verdict.margin.delta_us for one in row) for row in self.cells)

    @property
    def enabled(self) -> tuple[tuple[bool, ...], ...]:
        """Where to split: the margin exceeds the safety margin and both gates pass."""
        return tuple(tuple(one.verdict.enable for one in row) for row in self.cells)

    @property
    def share_enabled(self) -> float:
        """Of all cells."""
        flat = [one for row in self.enabled for one in row]
        return sum(flat) / len(flat)


def find_surface(
    colocated: Side,
    split: Side,
    trace: FastWorkload,
    base: Cell,
    x: Axis,
    y: Axis,
    ask: MarginAsk,
) -> Surface:
    """Every pair of values; what neither axis names is as in `base`."""
    if x.field == y.field:
        raise ConfigError(f"both axes are {x.field}; name two different ones")
    cells = [
        msgspec.structs.replace(base, **{x.field: across, y.field: down})
        for down in y.values
        for across in x.values
    ]
    found: list[CellMargin] = []

    def run(cell: Cell) -> CellMargin:
        return net_margin(colocated, split, trace, cell, ask)

    def after(cell: Cell, margin: CellMargin) -> None:
        found.append(margin)

    in_waves(cells, run, after)
    return Surface(x=x, y=y, cells=_rows(found, len(x.values)))


def _rows(found: Sequence[CellMargin], width: int) -> tuple[tuple[CellMargin, ...], ...]:
    return tuple(tuple(found[start : start + width]) for start in range(0, len(found), width))
