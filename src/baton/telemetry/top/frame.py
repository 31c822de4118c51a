"""One frame of `baton top`: the feed of /dashboard as lines of a terminal."""

from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from baton.core.units import shown_nbytes
from baton.telemetry.live.feed import Clock, Feed, Flow, Row, WorkerCard
from baton.telemetry.top.bars import PHASE_CELLS, STATE_CELLS, block_bar, legend, phase_bar
from baton.telemetry.trace.bound import ms

_INDENT = "  "
_GOAL = 0.9
"""Below this share of met targets a number is marked."""
_ENDLESS = 10_000
_WIDE, _NARROW, _BAR_COLUMNS = 140, 60, 28
KEYS = "↑ ↓ choose   Enter waterfall   Esc back   p pause   q quit"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """How to draw: the terminal's width, how many requests, and what the person chose."""

    url: str
    columns: int
    num_requests: int
    chosen: str = ""
    is_short: bool = False
    """Few lines: less of workers, flows and cells, so that requests have room."""
    first: int = 0
    """Number of the first request that is shown."""
    note: str = ""
    """What is wrong with the connection, or that it is paused."""
    keys: str = ""


def frame(feed: Feed, view: View) -> Group:
    """Everything, from top to bottom; no line is longer than `view.columns`."""
    return Group(*_head(feed, view), *_requests(feed, view))


def height_without_requests(feed: Feed, view: View) -> int:
    """Lines of everything else."""
    bare = msgspec.structs.replace(view, num_requests=0)
    console = Console(width=view.columns, height=_ENDLESS)
    return len(console.render_lines(frame(feed, bare)))


def clean(text: str) -> str:
    """Text of a server for a terminal: nothing in it moves the cursor."""
    return "".join(one if one.isprintable() else "?" for one in text)


def line(text: Text, columns: int) -> Text:
    """Cut at the terminal's edge."""
    text.truncate(columns, overflow="ellipsis")
    text.no_wrap = True
    return text


# -- above the requests ------------------------------------------------------------------------


def _head(feed: Feed, view: View) -> Iterable[Text | Table]:
    yield title(feed, view)
    if view.note:
        yield line(Text(clean(view.note), style="bold red"), view.columns)
    yield _clocks(feed, view)
    yield _rates(feed, view)
    yield from _blank(view)
    yield from _workers(feed.workers, view)
    yield from _blank(view)
    yield from _flows(feed.flows, view)
    if feed.attainment and not view.is_short:
        yield Text()
        yield _cells(feed.attainment)
    yield from _blank(view)


def _blank(view: View) -> Iterable[Text]:
    return () if view.is_short else (Text(),)


def title(feed: Feed, view: View) -> Text:
    """Who is looked at, and whether it can serve."""
    text = Text("baton top", style="bold")
    text.append(f"  {clean(feed.model) or 'no model yet'}  ", style="default not bold")
    ready = f"not ready: {clean(feed.ready)}" if feed.ready else "ready"
    text.append(ready, style="bold red" if feed.ready else "bold green")
    text.append(f"  {view.url}", style="dim")
    return line(text, view.columns)


def _clocks(feed: Feed, view: View) -> Table:
    is_narrow = view.columns < _NARROW
    last = () if is_narrow else (">requests",)
    names = ("TTFT", "TPOT") if is_narrow else ("time to first token", "time per further token")
    head = "1 min" if is_narrow else "clock, last minute"
    table = _grid(head, ">p50", ">p99", ">target", *last)
    for name, clock in zip(names, (feed.ttft, feed.tpot), strict=True):
        late = bool(clock.target_ms) and clock.p99_ms > clock.target_ms
        p99 = Text(_shown(clock, clock.p99_ms), style="red" if late else "")
        target = _ms(clock.target_ms) if clock.target_ms else "none"
        cells = (name, _shown(clock, clock.p50_ms), p99, target, str(clock.num))
        table.add_row(*cells[: len(table.columns)])
    return table


def _shown(clock: Clock, value_ms: float) -> str:
    return _ms(value_ms) if clock.num else "–"


def _rates(feed: Feed, view: View) -> Text:
    judged = sum(cell["num"] for cell in feed.attainment.values())
    met = sum(cell["num"] * cell["joint"] for cell in feed.attainment.values())
    text = Text("both targets met: ")
    if judged:
        style = "green" if met >= _GOAL * judged else "red"
        text.append(f"{met / judged:.1%}", style=style)
        text.append(f" of {judged:.0f}")
    else:
        text.append("no targets are set")
    text.append(f"  {feed.requests_per_s:.1f} requests/s, {feed.open_requests} open")
    text.append(f", {feed.waiting_requests} without route")
    return line(text, view.columns)


def _workers(workers: Sequence[WorkerCard], view: View) -> Iterable[Text]:
    """A line each; its blocks beside it, or below it where the terminal is narrow."""
    heads = ("worker", "role", "epoch", "wait", "run", "rows", "in flight")
    cells = [
        (
            clean(one.worker_id), clean(one.role), str(one.epoch), str(one.waiting),
            str(one.running), str(one.pending_tokens), shown_nbytes(one.inflight_nbytes),
        )
        for one in workers
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    is_wide, is_short = view.columns >= _WIDE, view.is_short

    def joined(values: Sequence[str]) -> str:
        left = [value.ljust(width) for value, width in zip(values[:2], widths, strict=False)]
        right = [value.rjust(width) for value, width in zip(values[2:], widths[2:], strict=True)]
        return "  ".join((*left, *right))

    head = joined(heads) + ("   blocks" if is_wide or is_short else "")
    yield line(Text(head, style="dim"), view.columns)
    for one, values in zip(workers, cells, strict=True):
        text, below = Text(joined(values)), Text("    ")
        blocks = block_bar(one.blocks, _BAR_COLUMNS if is_wide else _BAR_COLUMNS // 2)
        if one.blocks and (is_wide or not is_short):
            counts = ", ".join(f"{one.blocks.get(name, 0)} {name}" for name in STATE_CELLS)
            blocks.append(f"  {counts}", style="default")
        if is_wide or is_short:
            yield line(text.append("   ").append_text(blocks), view.columns)
        else:
            yield line(text, view.columns)
            yield line(below.append_text(blocks), view.columns)


def _flows(flows: Sequence[Flow], view: View) -> Iterable[Text | Table]:
    if not flows:
        yield Text("K/V between workers, last minute: nothing moved", style="dim")
        return
    if view.is_short:
        total = sum(flow.nbytes for flow in flows)
        first = max(flows, key=lambda flow: flow.nbytes)
        most_text = f"most from {clean(first.source)} to {clean(first.destination)}"
        text = f"K/V, last minute: {shown_nbytes(total)}, {most_text}"
        yield line(Text(text), view.columns)
        return
    most = max(flow.nbytes for flow in flows) or 1
    table = _grid("K/V, last minute", "", ">bytes", ">requests")
    width = max(6, min(_BAR_COLUMNS, view.columns - 58))
    for flow in flows:
        bar = Text("━" * max(1, round(width * flow.nbytes / most)), style="dark_cyan")
        route = f"{clean(flow.source)} → {clean(flow.destination)}"
        table.add_row(route, bar, shown_nbytes(flow.nbytes), str(flow.num_requests))
    yield table


def _cells(attainment: dict[str, dict[str, float]]) -> Table:
    table = _grid("targets met, by cell", ">judged", ">TTFT", ">TPOT", ">both")
    for name, cell in sorted(attainment.items()):
        shares = [
            Text(f"{cell[clock]:.1%}", style="green" if cell[clock] >= _GOAL else "red")
            for clock in ("ttft", "tpot", "joint")
        ]
        table.add_row(clean(name), f"{cell['num']:.0f}", *shares)
    return table


# -- the requests ------------------------------------------------------------------------------


def _requests(feed: Feed, view: View) -> Iterable[Text]:
    if not feed.requests:
        text = (
            "no request has ended yet" if feed.is_live else "telemetry.live is false: none is kept"
        )
        yield Text(text, style="dim")
        return
    seen = {name for row in feed.requests for name, _, _ in row.spans}
    shown = {name: cell for name, cell in PHASE_CELLS.items() if name in seen}
    yield from legend(shown).wrap(Console(), view.columns)
    for row in feed.requests[view.first : view.first + view.num_requests]:
        yield from request_lines(row, view)
    if view.keys:
        yield line(Text(view.keys, style="dim"), view.columns)


def request_lines(row: Row, view: View) -> Iterable[Text]:
    """A request's line and its sentence, on as many lines as it needs at this width."""
    marker = "▶ " if row.request_id == view.chosen else _INDENT
    text = Text(marker, style="bold")
    text.append(f"{clean(row.request_id)[:8]:8} ", style="bold")
    style = "not bold" if row.state == "finished" else "not bold red"
    text.append(f"{row.age_s:4.0f} s  {clean(row.state):9} ", style=style)
    text.append(f"{_ms(row.total_ms):>8} ", style="not bold")
    per_token = _ms(row.tpot_ms) if row.tpot_ms else "–"
    text.append(f"{per_token:>8}  ", style="not bold dim")
    text.append_text(phase_bar(row.spans, row.total_ms, max(8, view.columns - len(text) - 1)))
    yield line(text, view.columns)
    for part in wrapped(row.sentence, view.columns - 2 * len(_INDENT)):
        yield Text(2 * _INDENT + part, style="dim")


def wrapped(sentence: str, columns: int) -> list[str]:
    """The sentence in lines of at most so many columns."""
    lines = [""]
    for word in clean(sentence).split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > columns:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return [one[:columns] for one in lines]


def _grid(*names: str) -> Table:
    """A table without lines; a name that begins with > is a column of numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in names:
        number = name.startswith(">")
        table.add_column(
            name.removeprefix(">"), justify="right" if number else "left", no_wrap=True
        )
    return table


def _ms(value_ms: float) -> str:
    return f"{value_ms / 1000:.2f} s" if value_ms >= 10_000 else ms(value_ms * 1000)
