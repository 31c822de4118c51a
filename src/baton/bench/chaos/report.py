"""A chaos run for the reader."""

from collections import Counter
from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.table import Table

from baton.bench.chaos.calls import VIOLATIONS, End
from baton.bench.chaos.kinds import ABOUT, Kind
from baton.bench.chaos.recovery import Recovery
from baton.bench.chaos.result import ChaosResult, PartResult

_MAX_SHOWN = 30


def print_result(result: ChaosResult, console: Console) -> None:
    """Tables of faults, requests and times, then every violation."""
    console.print(_faults(result))
    console.print(_requests(result))
    console.print(_tiers(result))
    console.print(_times(result))
    violations = result.violations
    for text in violations[:_MAX_SHOWN]:
        console.print(f"violation: {text}", markup=False, highlight=False, soft_wrap=True)
    if len(violations) > _MAX_SHOWN:
        console.print(f"... and {len(violations) - _MAX_SHOWN} more")
    total = sum(sum(part.faults.values()) for part in result.parts)
    verdict = "no violation" if not violations else f"{len(violations)} violations"
    if result.was_interrupted:
        verdict += " until it was interrupted"
    console.print(
        f"{result.model}, seed {result.seed}: {total} faults, {verdict}",
        style="green" if not violations else "red",
        highlight=False,
    )


def _table(title: str, first: str, result: ChaosResult) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for part in result.parts:
        table.add_column(f"{part.name}, {part.duration_s:.0f} s", justify="right")
    table.add_column("total", justify="right")
    return table


def _rows(table: Table, result: ChaosResult, names: list[str], counts: list[Counter[str]]) -> None:
    for name in names:
        values = [count[name] for count in counts]
        table.add_row(name, *map(str, values), str(sum(values)))


def _faults(result: ChaosResult) -> Table:
    table = _table("faults", "kind", result)
    counts = [Counter({str(k): n for k, n in part.faults.items()}) for part in result.parts]
    _rows(table, result, [str(kind) for kind in Kind if _has(counts, str(kind))], counts)
    absent = [str(kind) for kind in ABOUT if not _has(counts, str(kind))]
    if absent:
        table.caption = f"none of: {', '.join(absent)}"
    return table


def _has(counts: list[Counter[str]], name: str) -> bool:
    return any(count[name] for count in counts)


def _requests(result: ChaosResult) -> Table:
    table = _table("requests", "end", result)
    counts = [Counter(part.ends) for part in result.parts]
    names = [str(end) for end in End if _has(counts, str(end)) or end in VIOLATIONS]
    _rows(table, result, names, counts)
    codes = [Counter({f"  code {k}": n for k, n in part.codes.items()}) for part in result.parts]
    _rows(table, result, sorted({name for count in codes for name in count}), codes)
    return table


def _tiers(result: ChaosResult) -> Table:
    table = _table("blocks in the tiers of the workers, copies between workers", "what", result)
    counts = [
        Counter({k: n for k, n in part.counters.items() if k.startswith(("tier_", "copies_"))})
        for part in result.parts
    ]
    _rows(table, result, sorted({name for count in counts for name in count}), counts)
    return table


def _times(result: ChaosResult) -> Table:
    table = Table(title="recovery, health and readiness", title_justify="left")
    table.add_column("")
    for part in result.parts:
        table.add_column(part.name, justify="right")
    limit_s = result.recovery_limit_s
    rows: dict[str, Callable[[PartResult], str]] = {
        "one worker died": lambda p: _spread([r for r in p.recoveries if not r.is_outage]),
        "a role or the gateway was out": lambda p: _spread(
            [r for r in p.recoveries if r.is_outage]
        ),
        "slowest request, s": lambda p: f"{p.slowest_request_s:.1f}",
        "/health samples, slowest s": lambda p: f"{p.num_health}, {p.slowest_health_s:.2f}",
        "/ready samples": lambda p: str(p.num_ready),
        "violations": lambda p: str(len(p.violations)),
    }
    for name, value in rows.items():
        table.add_row(name, *(value(part) for part in result.parts))
    table.caption = (
        f"recovery: deaths, median and max s until a request submitted after the death was "
        f"answered; limit {limit_s:.0f} s (lease + 1 s) where one worker died"
    )
    return table


def _spread(recoveries: list[Recovery]) -> str:
    if not recoveries:
        return "0"
    times = [r.duration_s for r in recoveries]
    return f"{len(times)}: {median(times):.2f} / {max(times):.2f}"


def summary(part: PartResult) -> str:
    """One line about a part that is over."""
    return (
        f"{part.name}: judged; {sum(part.faults.values())} faults, "
        f"{sum(part.ends.values())} requests, {len(part.violations)} violations"
    )
