"""A race on the terminal: a table for each contest, the margin taken apart, the verdict."""

from rich.console import Console
from rich.table import Table

from baton.bench.effects.effect import print_effects
from baton.bench.race.result import RaceResult
from baton.bench.race.standing import Margin, Standing


def print_race(result: RaceResult, console: Console) -> None:
    """Everything that a person decides by."""
    titles = {arm.name: arm.title for arm in result.arms}
    for standing in result.standings:
        _print_standing(standing, titles, console)
        if standing.margins:
            _print_margins(standing.margins, console)
    if result.predictions:
        _print_predictions(result, console)
    print_effects(result.effects, console, title="Effects of this race")
    for standing in result.standings:
        console.print(standing.sentence, highlight=False, soft_wrap=True, style="bold")


def _print_standing(standing: Standing, titles: dict[str, str], console: Console) -> None:
    rates = sorted({rate for curve in standing.curves.values() for rate in curve.rates})
    calibration = standing.calibration
    table = Table(
        title=f"{standing.contest}: {standing.title}",
        caption=(
            f"joint attainment (TTFT / TPOT alone) of {standing.targets} ms; unloaded split: "
            f"{calibration.mean_ttft_us / 1e3:.0f} and {calibration.mean_tpot_us / 1e3:.1f} ms; "
            f"failures are misses; 95 % bootstrap over requests, paired between arms"
        ),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("arm")
    for rate in rates:
        table.add_column(f"{rate:.2f}/s", justify="right")
    table.add_column("goodput, requests/s per core", justify="right")
    for name, curve in standing.curves.items():
        row = [titles[name]]
        for rate, joint in zip(curve.rates, curve.attainments, strict=True):
            ttft = standing.ttft_attainment[name][rate]
            tpot = standing.tpot_attainment[name][rate]
            row.append(f"{joint:.0%} ({ttft:.0%} / {tpot:.0%})")
        core = standing.per_core[name]
        bound = "≥ " if curve.is_above_range else ""
        row.append(f"{bound}{core.value:.3f} [{core.low:.3f}, {core.high:.3f}]")
        winner = name == "split" or name == standing.best_colocated
        table.add_row(*row, style="bold" if winner else "")
    console.print(table)


def _print_margins(margins: tuple[Margin, ...], console: Console) -> None:
    table = Table(
        title=f"Net margin of the split over {margins[0].rival}, ms a request (0x0FD)",
        caption="saved - exposed - route - failures; prefill delta: queue and fewer cores, outside",
        title_justify="left",
        caption_justify="left",
    )
    names = ("rate", "saved", "exposed", "route", "failures", "net", "prefill delta", "0x0FD says")
    for name in names:
        table.add_column(name, justify="right")
    for one in margins:
        margin = one.verdict.margin
        figures = (
            margin.interference_saved_us,
            margin.exposed_transfer_us,
            margin.route_delta_us,
            margin.failure_penalty_us,
            margin.delta_us,
            one.prefill_delta_us,
        )
        says = "split" if one.verdict.enable else "stay: " + ", ".join(_against(one))
        table.add_row(f"{one.rate:.2f}/s", *(f"{us / 1e3:.1f}" for us in figures), says)
    console.print(table)


def _against(one: Margin) -> list[str]:
    """What speaks against the split, in a word each."""
    verdict = one.verdict
    against = {
        "margin": verdict.margin.delta_us > verdict.safety_margin_us,
        "TTFT": verdict.ttft_passes,
        "TPOT": verdict.tpot_passes,
    }
    return [name for name, passes in against.items() if not passes]


def _print_predictions(result: RaceResult, console: Console) -> None:
    table = Table(
        title="Joint attainment: measured, and the same policies in the simulated host",
        title_justify="left",
    )
    for name in ("contest", "arm", "rate", "measured", "simulated", "points apart"):
        table.add_column(name, justify="right")
    for one in result.predictions:
        apart = 100 * abs(one.predicted - one.measured)
        table.add_row(
            one.contest,
            one.arm,
            f"{one.rate:.2f}/s",
            f"{one.measured:.0%}",
            f"{one.predicted:.0%}",
            f"{apart:.0f}",
        )
    console.print(table)
