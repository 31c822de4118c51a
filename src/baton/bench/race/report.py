"""The page of a race: the verdicts, and the plots that they rest on."""

from pathlib import Path

from baton.bench.race.cells import Cell
from baton.bench.race.figures import (
    gap_curves,
    goodput_bars,
    margin_waterfall,
    prediction_cloud,
    scale_curves,
)
from baton.bench.race.result import RaceResult
from baton.bench.race.standing import Standing
from baton.bench.report.attainment import attainment_curve
from baton.bench.report.distribution import latency_cdfs
from baton.bench.report.figure import Arms
from baton.bench.report.page import Section, Table, Tile, write_report
from baton.bench.report.scatter import latency_scatter
from baton.goodput.attainment import judge
from baton.goodput.search import Probe


def write_race_report(path: Path, result: RaceResult) -> None:
    """Write one self-contained page. Raises ConfigError when the file cannot be written."""
    titles = {arm.name: arm.title for arm in result.arms}
    sections = [_overview(result, titles)]
    if result.streams:
        sections.append(_streams(result))
    sections += [_contest(standing, result, titles) for standing in result.standings]
    if result.predictions:
        sections.append(_predictions(result))
    sections += [_effects(result), _foot(result)]
    headline = " ".join(standing.sentence for standing in result.standings)
    title = f"Race: {result.model} on {result.num_cores} cores"
    write_report(path, title, headline, sections)


def _overview(result: RaceResult, titles: dict[str, str]) -> Section:
    tiles = []
    for standing in result.standings:
        ratio = standing.ratio
        value = f"{ratio.value:.2f}x" if ratio else "none passes"
        note = f"[{ratio.low:.2f}, {ratio.high:.2f}]" if ratio else "colocated"
        tiles.append(
            Tile(label=f"split / best colocated, {standing.contest}", value=value, note=note)
        )
    return Section(
        title="Who serves more within both clocks",
        tiles=tuple(tiles),
        figures=(goodput_bars(result.standings, titles),),
    )


def _streams(result: RaceResult) -> Section:
    return Section(
        title="Live streams under a burst",
        text="Three streams decode while prompts of 512 to 1024 tokens arrive.",
        figures=(gap_curves(result.streams),),
    )


def _contest(standing: Standing, result: RaceResult, titles: dict[str, str]) -> Section:
    cells = [cell for cell in result.cells if cell.contest == standing.contest]
    figures = [
        attainment_curve(_probes(cells, standing, titles), standing.targets.attainment),
        latency_scatter(_records(cells, titles), standing.targets),
        latency_cdfs(_records(cells, titles), standing.targets),
        scale_curves(standing, titles),
        *(margin_waterfall(margin) for margin in standing.margins),
    ]
    return Section(
        title=f"{standing.contest}: {standing.title}",
        text=f"{standing.sentence}\nTargets: {standing.targets} ms.",
        figures=tuple(figures),
        tables=(_table(standing, titles),),
    )


def _records(cells: list[Cell], titles: dict[str, str]) -> Arms:
    """Every request of the rates that all arms ran, so that the clouds may be compared."""
    skipped = {cell.rate for cell in cells if cell.is_skipped}
    arms: Arms = {}
    for cell in cells:
        if cell.rate not in skipped:
            arms.setdefault(titles[cell.arm], []).extend(cell.records)
    return arms


def _probes(
    cells: list[Cell], standing: Standing, titles: dict[str, str]
) -> dict[str, list[Probe]]:
    probes: dict[str, list[Probe]] = {}
    for name, curve in standing.curves.items():
        found = probes.setdefault(titles[name], [])
        for rate in curve.rates:
            here = [c for c in cells if c.arm == name and c.rate == rate and not c.is_skipped]
            records = [record for cell in here for record in cell.records]
            if records:
                found.append(Probe(rate=rate, attainment=judge(records, standing.targets)))
    return probes


def _table(standing: Standing, titles: dict[str, str]) -> Table:
    rates = next(iter(standing.curves.values())).rates
    rows = []
    for name, curve in standing.curves.items():
        core = standing.per_core[name]
        rows.append(
            (
                titles[name],
                *(f"{attained:.0%}" for attained in curve.attainments),
                f"{core.value:.3f} [{core.low:.3f}, {core.high:.3f}]",
            )
        )
    return Table(
        columns=("arm", *(f"{rate:.2f}/s" for rate in rates), "goodput per core"),
        rows=tuple(rows),
    )


def _predictions(result: RaceResult) -> Section:
    return Section(
        title="Predicted without running it",
        text="The production nodes in virtual time; step times from a measured service profile.",
        figures=(prediction_cloud(result.predictions),),
    )


def _effects(result: RaceResult) -> Section:
    rows = tuple((e.id, e.title, e.measured, e.accept, e.verdict) for e in result.effects)
    table = Table(columns=("", "effect", "measured", "accepted", "verdict"), rows=rows)
    return Section(title="Effects", tables=(table,))


def _foot(result: RaceResult) -> Section:
    arms = tuple(
        (arm.title, f"{arm.num_cores} engine threads", arm.batch_policy, str(arm.max_batch_tokens))
        for arm in result.arms
    )
    return Section(
        title="What was run",
        text=(
            f"Baton {result.version}, seed {result.seed}, {result.duration_s / 60:.1f} minutes. "
            "All arms answer the same requests on the same cores, one after another, alternated "
            "within each rate and repetition. Latency counts from the schedule; the first content "
            "token ends TTFT. Failed requests are misses, one output token has no TPOT and meets "
            "it, and an arm that attained less than half at one rate counts as missing at higher "
            "ones. Intervals: 95 % bootstrap over requests, the same resamples for all arms."
        ),
        tables=(Table(columns=("arm", "cores", "batch policy", "token budget"), rows=arms),),
    )
