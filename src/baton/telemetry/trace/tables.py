"""The report of a trace, and of two side by side, as tables for a terminal."""

from collections.abc import Mapping

from rich.console import RenderableType
from rich.table import Table

from baton.telemetry.trace.bound import ms
from baton.telemetry.trace.summary import Spread, Summary


def report(summary: Summary) -> list[RenderableType]:
    """Phases, what bound requests, the two clocks, bytes, and how requests ended."""
    parts: list[RenderableType] = [_line("requests", summary.states)]
    for name, counts in (
        ("modes", summary.modes),
        ("not answered because", summary.reasons),
        ("failed attempts", summary.fallbacks),
    ):
        if counts:
            parts.append(_line(name, counts))
    if summary.phases:
        parts += [_phases(summary), _line("most time went to", summary.bound)]
    parts += [_clocks(summary), _bytes(summary)]
    return parts


def comparison(first: Summary, second: Summary, names: tuple[str, str]) -> list[RenderableType]:
    """The phases of two traces and what the second takes more."""
    table = Table("mean of", *names, "difference", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = [("time to first token", first.ttft.mean_us, second.ttft.mean_us)]
    for a, b in zip(first.phases, second.phases, strict=False):
        rows.append((str(a.phase), a.mean_us, b.mean_us))
    rows.append(("exposed stall", first.exposed.mean_us, second.exposed.mean_us))
    rows.append(("time per further token", first.tpot.mean_us, second.tpot.mean_us))
    for name, a_us, b_us in rows:
        table.add_row(
            name, ms(a_us), ms(b_us), ("+" if b_us >= a_us else "-") + ms(abs(b_us - a_us))
        )
    parts: list[RenderableType] = [table]
    for summary, name in zip((first, second), names, strict=True):
        parts.append(_line(name, summary.states))
    if first.phases and second.phases:
        pairs = list(zip(first.phases, second.phases, strict=True))
        grown = max(pairs, key=lambda pair: abs(pair[1].mean_us - pair[0].mean_us))
        change_us = grown[1].mean_us - grown[0].mean_us
        more = "more" if change_us >= 0 else "less"
        if not change_us:
            return [*parts, "No phase changed."]
        parts.append(f"The largest change is {grown[0].phase}: {ms(abs(change_us))} {more}.")
    return parts


def _line(name: str, counts: Mapping[str, int]) -> str:
    return f"{name}: " + ", ".join(f"{count} {what}" for what, count in counts.items())


def _phases(summary: Summary) -> Table:
    table = Table("phase", "mean", "p50", "p99", "share of TTFT", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in summary.phases:
        if one.p99_us or one.mean_us:
            table.add_row(
                str(one.phase), ms(one.mean_us), ms(one.p50_us), ms(one.p99_us), f"{one.share:.1%}"
            )
    table.add_row(
        "TTFT", ms(summary.ttft.mean_us), ms(summary.ttft.p50_us), ms(summary.ttft.p99_us), "100.0%"
    )
    return table


def _clocks(summary: Summary) -> Table:
    table = Table("clock", "requests", "mean", "p50", "p99", "max", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, one in (
        ("time to first token", summary.ttft),
        ("time per further token", summary.tpot),
        ("exposed stall", summary.exposed),
    ):
        table.add_row(name, str(one.num), *_shown(one))
    return table


def _shown(one: Spread) -> tuple[str, ...]:
    return tuple(ms(value) for value in (one.mean_us, one.p50_us, one.p99_us, one.max_us))


def _bytes(summary: Summary) -> str:
    book = summary.ledger
    parts = [
        f"{getattr(book, field)} {field.removesuffix('_nbytes')}"
        for field in book.__struct_fields__
        if getattr(book, field) or field == "logical_nbytes"
    ]
    cached = summary.num_cached_tokens / max(1, summary.num_prompt_tokens)
    return (
        f"bytes: {book.physical_nbytes} physical = {' + '.join(parts)}; work {ms(summary.work_us)}"
        f" in a wall of {ms(summary.wall_us)}, so {ms(summary.overlap_us)} overlapped; "
        f"{summary.num_retries} moves failed; {cached:.0%} of prompt rows were cached"
    )
