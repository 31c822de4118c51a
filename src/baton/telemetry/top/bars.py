"""Bars of one terminal line: phases on a time axis, block states as shares of a pool."""

from collections.abc import Sequence

from rich.text import Text

from baton.telemetry.trace.phases import Phase

PHASE_CELLS: dict[str, tuple[str, str]] = {
    Phase.ARRIVAL: ("a", "grey62"),
    Phase.RETRY: ("!", "red3"),
    Phase.FETCH: ("f", "orchid"),
    Phase.WAIT: ("w", "hot_pink3"),
    Phase.ROUTE: ("r", "gold3"),
    Phase.QUEUE: ("q", "dark_orange"),
    Phase.PREFILL: ("P", "steel_blue1"),
    Phase.TRANSFER: ("T", "dark_cyan"),
    Phase.VALIDATE: ("v", "dark_olive_green3"),
    Phase.PUBLISH: ("p", "pale_turquoise1"),
    Phase.ADMISSION: ("d", "sea_green3"),
    Phase.FIRST_TOKEN: ("1", "medium_purple1"),
}
"""A letter and a colour: the letter says it where there is no colour, and to who sees none."""
STATE_CELLS: dict[str, tuple[str, str]] = {
    "used": ("#", "steel_blue1"),
    "reserved": ("+", "gold3"),
    "quarantined": ("!", "red3"),
    "cached": ("=", "sky_blue3"),
    "free": ("·", "grey42"),
}
Span = tuple[str, float, float]
"""Phase, start and length in milliseconds."""
_OTHER = ("?", "white")


def phase_bar(spans: Sequence[Span], total_ms: float, columns: int) -> Text:
    """Phases one after the other on an axis of so many columns.

    A cell belongs to the phase that has most of it, so that a short phase never hides a long one.
    """
    bar = Text()
    for column in range(columns):
        begin, end = total_ms * column / columns, total_ms * (column + 1) / columns
        shares = [(min(end, at + length) - max(begin, at), name) for name, at, length in spans]
        share, name = max(shares, default=(0.0, ""))
        if share <= 0:
            bar.append(" ")
            continue
        letter, colour = PHASE_CELLS.get(name, _OTHER)
        bar.append(letter, style=f"black on {colour}")
    return bar


def phase_line(span: Span, total_ms: float, columns: int) -> Text:
    """One phase at its place on the axis; however short it is, it shows."""
    name, at_ms, length_ms = span
    letter, colour = PHASE_CELLS.get(name, _OTHER)
    first = min(columns - 1, max(0, int(columns * at_ms / total_ms))) if total_ms else 0
    last = round(columns * (at_ms + length_ms) / total_ms) if total_ms else 0
    last = min(columns, max(first + 1, last))
    bar = Text(" " * first)
    bar.append(letter * (last - first), style=f"black on {colour}")
    bar.append(" " * (columns - last))
    return bar


def block_bar(blocks: dict[str, int], columns: int) -> Text:
    """The states of a pool by their shares; every state that has a block has a cell."""
    total = sum(blocks.values())
    if not total:
        return Text("no report yet".ljust(columns)[:columns], style="dim")
    held = [name for name in STATE_CELLS if blocks.get(name, 0)]
    cells = {name: max(1, round(columns * blocks[name] / total)) for name in held}
    while sum(cells.values()) != columns:
        largest = max(cells, key=lambda name: cells[name])
        cells[largest] += 1 if sum(cells.values()) < columns else -1
    bar = Text()
    for name in held:
        letter, colour = STATE_CELLS[name]
        bar.append(letter * cells[name], style=f"black on {colour}" if name != "free" else "dim")
    return bar


def legend(cells: dict[str, tuple[str, str]]) -> Text:
    """What each letter stands for."""
    text = Text()
    for name, (letter, colour) in cells.items():
        style = "dim" if name == "free" else f"black on {colour}"
        text.append(letter, style=style)
        text.append(f" {name.replace('_', ' ')}  ", style="dim")
    text.rstrip()
    return text
