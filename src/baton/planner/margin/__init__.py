"""Where splitting pays: the net margin over cells of workload and topology (0x0FD)."""

from baton.planner.margin.cell import Cell
from baton.planner.margin.measure import CellMargin, MarginAsk, Side, net_margin, side_of
from baton.planner.margin.surface import Axis, Surface, find_surface

__all__ = [
    "Axis",
    "Cell",
    "CellMargin",
    "MarginAsk",
    "Side",
    "Surface",
    "find_surface",
    "net_margin",
    "side_of",
]
