"""What a person reads when a run has ended."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from baton.bench.load.measured import Measured
from baton.bench.load.schedule import LATE_US
from baton.bench.load.session import ProbeRun
from baton.goodput.attainment import Attainment
from baton.goodput.interval import Estimate
from baton.goodput.search import Goodput

LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E"}
COLUMNS = ("mean", "p50", "p90", "p99")
PHASES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def latency_rows(measured: Measured) -> list[tuple[str, ...]]:
    """Name, mean and percentiles of each latency, in milliseconds."""
    found = measured.latency
    return [
        (title, *(_ms(found[f"{column}_{name}_ms"]) for column in COLUMNS))
        for name, title in LATENCIES.items()
    ]


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value >= 0.01 else f"{value:.4f}"


def share(estimate: Estimate) -> str:
    """A fraction with its interval."""
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"


def attainment_rows(attainment: Attainment) -> list[tuple[str, str]]:
    """Each target by itself, all together, and the goodput."""
    rows = [(PHASES[name], share(one)) for name, one in attainment.phases.items()]
    goodput = attainment.goodput
    return [
        *rows,
        ("all targets", share(attainment.joint)),
        ("goodput", f"{goodput.value:.3g} requests/s [{goodput.low:.3g}, {goodput.high:.3g}]"),
    ]


def count_line(measured: Measured) -> str:
    """How many requests ended which way, and the rates."""
    found = measured.throughput
    return (
        f"{found['completed']} completed, {found['failed']} failed, {found['cancelled']} cancelled"
        f" in {found['duration']:.1f} s: {found['request_throughput']:.3g} requests/s, "
        f"{found['output_throughput']:,.0f} output tokens/s, "
        f"{found['total_token_throughput']:,.0f} tokens/s in all"
    )


def print_measured(measured: Measured, console: Console) -> None:
    """The tables of one run."""
    table = Table(title="Latency (ms)", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for column in COLUMNS:
        table.add_column(column, justify="right", min_width=8)
    for row in latency_rows(measured):
        table.add_row(*row)
    console.print(table)
    console.print(count_line(measured), highlight=False, soft_wrap=True)
    for reason, num in measured.failures.items():
        console.print(Text(f"  failed: {num} x {reason}", style="red"))
    if measured.attainment is not None:
        _print_attainment(measured.attainment, console)
    if measured.modes:
        modes = ", ".join(f"{num} {mode}" for mode, num in measured.modes.items())
        console.print(f"served: {modes}", highlight=False)
    if lengths := measured.mean_lengths:
        console.print(
            f"mean lengths as the server counts: {lengths['mean_input_len']:.1f} prompt tokens, "
            f"{lengths['mean_output_len']:.1f} output tokens",
            highlight=False,
        )
    late = measured.lateness
    if late is not None:
        console.print(f"client lateness: {late}", style="dim", highlight=False)


def late_warning(measured: Measured) -> str:
    """A warning when the client could not keep to its schedule; "" when it could."""
    late = measured.lateness
    if late is None or not late.is_late:
        return ""
    return (
        f"WARNING: the client sent its requests late (p99 {late.p99_us / 1e3:.1f} ms, more than "
        f"{LATE_US / 1e3:g} ms). Latencies count from the schedule and so include it; lower the "
        "rate, free a core for the client, or expect this with --max-concurrency or rate inf"
    )


def _print_attainment(attainment: Attainment, console: Console) -> None:
    console.print()
    table = Table(title="Attainment", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column("")
    for name, value in attainment_rows(attainment):
        table.add_row(name, value)
    console.print(table)
    console.print(attainment.describe(), style="dim", highlight=False, soft_wrap=True)


def print_search(probes: list[ProbeRun], goodput: Goodput | None, console: Console) -> None:
    """Every rate that was run, and the answers."""
    table = Table(title="Rates", title_justify="left", box=None, pad_edge=False)
    for column in ("requests/s", "all targets", "TTFT", "TPOT", "p99 TTFT ms", "p99 TPOT ms"):
        table.add_column(column, justify="right")
    for run in sorted(probes, key=lambda run: run.rate):
        found, latency = run.measured.attainment, run.measured.latency
        if found is None:
            continue
        phases = found.phases
        table.add_row(
            f"{run.rate:g}",
            share(found.joint),
            *(f"{phases[name].value:.1%}" if name in phases else "-" for name in ("ttft", "tpot")),
            _ms(latency["p99_ttft_ms"]),
            _ms(latency["p99_tpot_ms"]),
        )
    console.print(table)
    if goodput is not None:
        console.print(f"[b]goodput, all targets at once[/]: {goodput.joint}", highlight=False)
        console.print(f"goodput, each target by itself: {goodput.phases}", highlight=False)
