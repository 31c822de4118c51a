"""What a comparison looks like: a table per arm, every difference, and one line at the end."""

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from baton.bench.compare.difference import Aspect, Comparison, Verdict
from baton.bench.compare.record import Record

_MAX_LINES = 40


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one `baton compare`, as written by --json."""

    version: str
    model: str
    config_digest: str
    deterministic: bool
    comparisons: tuple[Comparison, ...]
    skipped: tuple[str, ...] = ()
    """Cases that this model's context cannot hold."""
    duration_s: float = 0.0

    @property
    def same(self) -> bool:
        """True when every arm agrees with the reference in everything required."""
        return bool(self.comparisons) and all(one.same for one in self.comparisons)


def print_outcome(outcome: Outcome, console: Console) -> None:
    """The first arm as a table, the others as one line each, then differences and the summary."""
    first, *others = outcome.comparisons
    console.print(_table(first))
    for comparison in others:
        line = f"{comparison.arm}: {_counts(comparison)}"
        console.print(line, highlight=False, soft_wrap=True)
    for comparison in outcome.comparisons:
        _print_differences(comparison, console)
    if outcome.skipped:
        names = ", ".join(outcome.skipped)
        console.print(f"skipped, longer than the model's context: {names}", highlight=False)
    console.print(summary(outcome), highlight=False, soft_wrap=True)


def summary(outcome: Outcome) -> str:
    """The one line that says what was compared and how it ended."""
    verdicts = [verdict for one in outcome.comparisons for verdict in one.verdicts]
    different = sum(not verdict.same for verdict in verdicts)
    handoffs = sum(one.handoffs for one in outcome.comparisons)
    moved = sum(_moved(verdict.candidate) for verdict in verdicts)
    result = "equal" if outcome.same else f"{different} DIFFERENT"
    what = "tokens, text, ends, logits, logprobs and K/V bit for bit"
    if not outcome.deterministic:
        noted = sum(bool(verdict.notes) for verdict in verdicts)
        what = (
            "tokens, text and ends (bits are not promised for this model or cache.milestone: "
            f"logits, logprobs and K/V are not required; they differ in {noted} requests)"
        )
    return (
        f"{result}: {len(verdicts)} requests of {len(outcome.comparisons)} deployments against "
        f"colocated, {handoffs} handoffs, {_bytes(moved)} moved; compared {what}; "
        f"{outcome.model}, configuration {outcome.config_digest}, {outcome.duration_s:.0f} s"
    )


def _counts(comparison: Comparison) -> str:
    equal = sum(verdict.same for verdict in comparison.verdicts)
    moved = sum(_moved(verdict.candidate) for verdict in comparison.verdicts)
    records = [verdict.candidate for verdict in comparison.verdicts if verdict.candidate]
    preemptions = sum(record.num_preemptions for record in records)
    return (
        f"{equal} of {len(comparison.verdicts)} requests equal, {comparison.handoffs} handoffs, "
        f"{_bytes(moved)} moved, {preemptions} preemptions, {comparison.duration_s:.1f} s"
    )


def _table(comparison: Comparison) -> Table:
    table = Table(
        title=f"{comparison.arm}: {_counts(comparison)}",
        title_justify="left",
        box=None,
        header_style="bold",
        padding=(0, 1, 0, 0),
    )
    table.add_column("case", no_wrap=True)
    columns = ("n", "tok", "end", "log", "K/V", "mode", "visible", "cached", "moved")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    cases: dict[str, list[Verdict]] = {}
    for verdict in comparison.verdicts:
        cases.setdefault(verdict.case, []).append(verdict)
    for case, verdicts in cases.items():
        table.add_row(case, str(len(verdicts)), *_cells(verdicts))
    return table


def _cells(verdicts: Sequence[Verdict]) -> list[str]:
    records = [verdict.candidate for verdict in verdicts if verdict.candidate]
    digests = any(record.digests for record in records)
    marks = [
        _mark(verdicts, aspect) if digests or aspect not in (Aspect.LOGITS, Aspect.KV) else "-"
        for aspect in (Aspect.TOKENS, Aspect.END, Aspect.LOGITS, Aspect.KV)
    ]
    run = [verdict for verdict in verdicts if _differs(verdict, Aspect.RUN)]
    modes = "/".join(sorted({record.mode or "none" for record in records})) or "none"
    return [
        *marks,
        f"[red]{modes} ![/red]" if run else modes,
        _range([record.visible_tokens for record in records]),
        _range([record.cached_tokens for record in records]),
        _bytes(sum(map(_moved, records))),
    ]


def _mark(verdicts: Sequence[Verdict], aspect: Aspect) -> str:
    if any(_differs(verdict, aspect) for verdict in verdicts):
        return "[red]≠[/red]"
    noted = any(note.aspect is aspect for verdict in verdicts for note in verdict.notes)
    if any(_differs(verdict, Aspect.RUN) for verdict in verdicts):
        return "[red]?[/red]"
    return "[yellow]≠[/yellow]" if noted else "[green]=[/green]"


def _differs(verdict: Verdict, aspect: Aspect) -> bool:
    return any(difference.aspect is aspect for difference in verdict.differences)


def _moved(record: Record | None) -> int:
    return max(0, record.moved_nbytes) if record else 0


def _range(values: Sequence[int]) -> str:
    known = sorted({value for value in values if value >= 0})
    if not known:
        return "-"
    return str(known[0]) if len(known) == 1 else f"{known[0]}..{known[-1]}"


def _bytes(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f}M" if nbytes >= 1 << 20 else f"{nbytes / 1024:.0f}K"


def _print_differences(comparison: Comparison, console: Console) -> None:
    lines = [
        f"{comparison.arm} {verdict.case} {verdict.label}: {difference.aspect}: {difference.text}"
        for verdict in comparison.verdicts
        for difference in verdict.differences
    ]
    for line in lines[:_MAX_LINES]:
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    if len(lines) > _MAX_LINES:
        console.print(f"{comparison.arm}: {len(lines) - _MAX_LINES} more differences")
