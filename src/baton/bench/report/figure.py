"""A figure as plain Plotly data and layout, and what all figures share."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from baton.goodput.record import Outcome, RequestRecord

Trace = dict[str, Any]
Arms = dict[str, list[RequestRecord]]
"""Records by the name of what was measured; one arm is the simple case."""

COLOURS = ("#0f7bc4", "#e08a00", "#0a9a72", "#c2659a", "#7a68d0", "#d5532a")
"""Told apart by colour-blind readers too, on light and on dark ground."""
SLO_COLOUR = "#0a9a72"
FAILED_COLOUR = "#d5342a"
US_PER_MS = 1000
US_PER_S = 1_000_000
MAX_POINTS = 500
"""Of one curve: more cannot be seen and make the file heavy."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What Plotly draws; the page adds colours of text, grid and ground."""

    name: str
    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]
    height: int = 420


def colour(index: int) -> str:
    """The colour of an arm."""
    return COLOURS[index % len(COLOURS)]


def faint(colour: str, opacity: float) -> str:
    """The same colour, seen through."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def completed(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """The requests that have latencies."""
    return [one for one in records if one.outcome is Outcome.COMPLETED]


def slo_line(x: Sequence[float], y: Sequence[float], label: str, **place: str) -> Trace:
    """A dashed line at a target."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(x),
        "y": list(y),
        "line": {"color": SLO_COLOUR, "width": 1.5, "dash": "dash"},
        "hoverinfo": "text",
        "text": label,
        "showlegend": False,
        **place,
    }


def panels(num: int, gap: float = 0.08) -> list[list[float]]:
    """Equal shares of an axis, from the start of the paper on."""
    width = (1 - gap * (num - 1)) / num
    return [
        [round(at * (width + gap), 4), round(at * (width + gap) + width, 4)] for at in range(num)
    ]
