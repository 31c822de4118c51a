"""The page of one request in a terminal: its sentence, waterfall and facts, as at /dashboard."""

from collections.abc import Iterable

from rich.console import Group
from rich.text import Text

from baton.core.units import shown_nbytes
from baton.telemetry.live.feed import Detail, Feed
from baton.telemetry.top.bars import phase_line
from baton.telemetry.top.frame import View, clean, line, title, wrapped
from baton.telemetry.trace.bound import ms
from baton.telemetry.trace.story import Story

_NAME_COLUMNS, _TIME_COLUMNS = 13, 9


def request_frame(feed: Feed, detail: Detail | None, view: View) -> Group:
    """One request; `detail` is None for one that is not kept any more."""
    return Group(*_lines(feed, detail, view))


def _lines(feed: Feed, detail: Detail | None, view: View) -> Iterable[Text]:
    yield title(feed, view)
    if view.note:
        yield line(Text(clean(view.note), style="bold red"), view.columns)
    yield Text()
    if detail is None:
        yield line(Text(f"no request {clean(view.chosen)} is kept any more"), view.columns)
    else:
        yield line(Text(f"request {clean(detail.row.request_id)}", style="bold"), view.columns)
        for part in wrapped(detail.row.sentence, view.columns):
            yield Text(part)
        yield Text()
        yield from _waterfall(detail, view)
        yield Text()
        yield from _facts(detail.story, view)
    yield Text()
    yield line(Text(view.keys, style="dim"), view.columns)


def _waterfall(detail: Detail, view: View) -> Iterable[Text]:
    """Each phase that took time on one axis, its length beside it."""
    columns = max(10, view.columns - _NAME_COLUMNS - _TIME_COLUMNS - 1)
    total_ms = detail.row.total_ms
    for span in detail.row.spans:
        text = Text(clean(span[0]).replace("_", " ").ljust(_NAME_COLUMNS))
        text.append_text(phase_line(span, total_ms, columns))
        text.append(f" {ms(span[2] * 1000):>{_TIME_COLUMNS}}")
        yield line(text, view.columns)
    if not detail.row.spans:
        yield Text("it had no time of its own", style="dim")
        return
    total = f"{'total':{_NAME_COLUMNS}}{' ' * columns} {ms(total_ms * 1000):>{_TIME_COLUMNS}}"
    yield line(Text(total, style="bold"), view.columns)


def _facts(story: Story, view: View) -> Iterable[Text]:
    book, work = story.ledger, story.work
    failed = f": {'; '.join(story.failures)}" if story.failures else ""
    moved = ", ".join(
        f"{shown_nbytes(getattr(book, field))} {field.removesuffix('_nbytes')}"
        for field in book.__struct_fields__
        if getattr(book, field) or field == "logical_nbytes"
    )
    route = story.decode if story.prefill == story.decode else f"{story.prefill} → {story.decode}"
    for name, value in (
        ("state", f"{story.state}{f' ({story.reason})' if story.reason else ''}"),
        ("route", f"{route or 'none'}{f' ({story.mode})' if story.mode else ''}"),
        ("chosen by", f"{story.policy or 'nobody'}: {story.route_reason or 'no reason given'}"),
        ("attempts", f"{story.num_attempts}{failed}"),
        (
            "tokens",
            f"{story.num_tokens} prompt, {story.cached_tokens} of them cached; "
            f"{story.num_output_tokens} out",
        ),
        ("K/V", moved),
        ("exposed", f"{ms(work.exposed_us)}, {work.num_retries} moves of chunks retried"),
        ("per token", ms(story.tpot_us) if story.tpot_us else "no further token"),
    ):
        text = Text(name.ljust(_NAME_COLUMNS), style="dim")
        text.append(clean(value), style="default not dim")
        yield line(text, view.columns)
