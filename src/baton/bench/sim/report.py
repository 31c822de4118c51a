"""The tables."""

import statistics

from rich.console import Console
from rich.table import Table

from baton.bench.sim.duel import Duel
from baton.bench.sim.result import Result


def print_result(result: Result, console: Console) -> None:
    """Duels, peers scaled, and what is asked."""
    if result.duels:
        console.print(_duels(result))
        console.print(_physics(result))
    if result.scaled:
        console.print(_scaled(result))
    if result.million is not None:
        one = result.million
        console.print(
            f"1,000,000 requests: {one.loop_s:.1f} s, {one.per_s:,.0f} requests/s, "
            f"{one.events_per_s:,.0f} events/s, peak {one.peak_nbytes / 2**20:,.0f} MiB"
        )
    if result.placement is not None:
        console.print(
            f"placement, {result.placement.what}: {result.placement.seconds:.1f} s, "
            f"{result.placement.found}"
        )
    for text in result.missing:
        console.print(f"NOT MEASURED: {text}", markup=False)
    console.print(_targets(result))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _duels(result: Result) -> Table:
    table = _table(
        f"requests simulated in a second, medians of {len(result.duels[0].ours)} rounds in turn; "
        f"machine code compiled before, in {result.compile_s:.0f} s",
        "workload",
        "ours: loop",
        "Dynamo: loop",
        "ratio",
        "process s",
        "Dynamo's",
        "ratio",
        "events/s",
        "of limit",
        "rows/s",
    )
    for duel in result.duels:
        events = statistics.median(one.events_per_s for one in duel.ours)
        rows = statistics.median(one.num_rows / one.loop_s for one in duel.ours)
        process_s = statistics.median(duel.ours_process_s)
        table.add_row(
            duel.what,
            f"{duel.our_per_s:,.0f}",
            *_theirs(duel, process_s),
            f"{events:,.0f}",
            f"{events / result.limit.events_per_s:.0%}",
            f"{rows:,.0f}",
        )
    return table


def _theirs(duel: Duel, process_s: float) -> tuple[str, ...]:
    if not duel.theirs:
        return "-", "-", f"{process_s:.2f}", "-", "-"
    their_s = statistics.median(one.process_s for one in duel.theirs)
    return (
        f"{duel.their_per_s:,.0f}",
        f"{duel.loop_ratio:.1f}x",
        f"{process_s:.2f}",
        f"{their_s:.2f}",
        f"{duel.process_ratio:.1f}x",
    )


def _physics(result: Result) -> Table:
    table = _table(
        "what they found, ms; Dynamo's first token is drawn by its decode worker, ours by prefill",
        "workload",
        "TTFT mean",
        "Dynamo",
        "p99",
        "Dynamo",
        "TPOT mean",
        "Dynamo",
        "reused",
        "Dynamo",
    )
    for duel in result.duels:
        ours, theirs = duel.ours[-1], duel.theirs[-1] if duel.theirs else None
        cells = []
        for name in ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms"):
            cells += [f"{getattr(ours, name):,.2f}", _of(theirs, name, ",.2f")]
        cells += [f"{ours.reused:.3f}", _of(theirs, "reused", ".3f")]
        table.add_row(duel.what, *cells)
    return table


def _of(outcome: object, name: str, form: str) -> str:
    return "-" if outcome is None else format(getattr(outcome, name), form)


def _scaled(result: Result) -> Table:
    table = _table(
        "peers that no registry carries, requests/s, scaled by Dynamo's speed in this run: "
        f"x {result.factor:.2f}",
        "peer",
        "its workload",
        "anchor",
        "scaled",
        "ours",
        "ratio",
    )
    for one in result.scaled:
        table.add_row(
            one.peer,
            one.workload,
            f"{one.anchor_per_s:,.0f}",
            f"{one.peer_per_s:,.0f}",
            f"{one.our_per_s:,.0f}",
            f"{one.ratio:,.0f}x",
        )
    return table


def _targets(result: Result) -> Table:
    table = _table("targets", "what", "value", "asked", "verdict")
    for target in result.targets:
        sign = "at least" if target.is_floor else "at most"
        table.add_row(
            target.name,
            f"{target.value:,.1f} {target.unit}",
            f"{sign} {target.bound:,.0f} {target.unit}",
            "met" if target.is_met else "NOT met",
        )
    return table
