"""One self-contained HTML file of figures about requests; every figure takes several arms."""

from baton.bench.report.attainment import attainment_curve
from baton.bench.report.distribution import latency_cdfs
from baton.bench.report.figure import Figure
from baton.bench.report.page import Section, Table, Tile, write_report
from baton.bench.report.scatter import latency_scatter
from baton.bench.report.timeline import timeline

__all__ = [
    "Figure",
    "Section",
    "Table",
    "Tile",
    "attainment_curve",
    "latency_cdfs",
    "latency_scatter",
    "timeline",
    "write_report",
]
