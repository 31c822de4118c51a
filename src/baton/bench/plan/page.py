"""The page of a plan: the sentence, both arms, every figure, and what each number rests on."""

from collections.abc import Sequence
from pathlib import Path

from baton.bench.plan.figures import (
    attainment_by_rate,
    frontier_plot,
    goodput_by_rate,
    picture,
    scale_plot,
    surface_plot,
)
from baton.bench.report.page import Section, Table, Tile, write_report
from baton.planner.plan.explain import Fact
from baton.planner.plan.result import ArmReport, PlanResult
from baton.planner.plan.table import ROWS, fewest_gpus, interval, margin_text, targets_text
from baton.planner.plan.verdict import CLOCKS


def write_plan_page(path: Path, result: PlanResult, facts: Sequence[Fact]) -> None:
    """One file that needs no network. Raises ConfigError when it cannot be written."""
    parts = [_overview(result), _curves(result), _places(result), _sensitivity(result)]
    sections = [*(one for one in parts if one is not None), _explained(facts), _foot(result)]
    title = f"Plan: {result.model} on {result.gpus} of {result.system}"
    write_report(path, title, result.verdict.sentence, sections)


def _overview(result: PlanResult) -> Section:
    tiles = [_tile(name, arm) for name, arm in result.arms.items()]
    ratio = result.verdict.margin.ratio
    if ratio is not None:
        note = f"{ratio.low:.2f} to {ratio.high:.2f}; safety {result.verdict.margin.safety:.0%}"
        tiles.append(Tile(label="split over colocated", value=f"{ratio.value:.2f}", note=note))
    source = result.provenance
    note = f"within about {source.error_share:.0%}"
    tiles.append(Tile(label="step times", value=source.predictor, note=note))
    arms = result.arms
    rows = tuple((title, *(show(arm) for arm in arms.values())) for title, show in ROWS)
    table = Table(
        columns=("", *arms),
        rows=rows,
        caption=f"Margin: {margin_text(result)}. Intervals are 95 %.",
    )
    lines = list(result.warnings)
    if fewest := fewest_gpus(result):
        lines.insert(0, f"At {result.asked_rate_per_s:g}/s would do: {fewest}.")
    return Section(text="\n".join(lines), tiles=tuple(tiles), tables=(table,))


def _tile(name: str, arm: ArmReport) -> Tile:
    return Tile(
        label=f"{name}, goodput",
        value=f"{arm.goodput.value:.3g}/s",
        note=f"{interval(arm.per_gpu)} per GPU; {CLOCKS[arm.binding]} binds",
    )


def _curves(result: PlanResult) -> Section | None:
    if not any(arm.curve for arm in result.arms.values()):
        return None
    figures = [goodput_by_rate(result), attainment_by_rate(result)]
    if result.frontier:
        figures.append(frontier_plot(result.frontier))
    return Section(title="How much, and until when", figures=tuple(figures))


def _places(result: PlanResult) -> Section:
    figures = tuple(picture(name, arm) for name, arm in result.arms.items())
    return Section(title="Where everything stands", figures=figures)


def _sensitivity(result: PlanResult) -> Section | None:
    figures = []
    if result.surface:
        figures.append(surface_plot(result.surface))
    if result.scales:
        figures.append(scale_plot(result.scales))
    return Section(title="When the answer changes", figures=tuple(figures)) if figures else None


def _explained(facts: Sequence[Fact]) -> Section:
    rows = tuple((fact.name, fact.value, fact.formula, fact.source) for fact in facts)
    return Section(
        title="What each number rests on",
        tables=(Table(columns=("number", "value", "formula", "source"), rows=rows),),
    )


def _foot(result: PlanResult) -> Section:
    source = result.provenance
    rows = [
        ("trace", result.trace),
        *(("", note) for note in result.trace_notes),
        ("its own rate", f"{result.own_rate_per_s:.4g} requests/s"),
        ("requests", result.draws),
        ("seeds", ", ".join(map(str, result.seeds))),
        ("targets", targets_text(result)),
        ("judged by", result.rule),
        ("step times", f"{source.predictor}: {source.reason}; {source.error}"),
        *(("passed over", f"{name}: {lacks}") for name, lacks in source.passed_over),
        *(("not searched", text) for text in result.skipped),
    ]
    return Section(
        title="How it was found",
        text=f"Baton {result.version}. Equal inputs and seeds give this page again, bit for bit.",
        tables=(Table(columns=("", ""), rows=tuple(rows)),),
    )
