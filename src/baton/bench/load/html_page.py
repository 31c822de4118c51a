"""The page of one command: headline, figures, tables, and at its foot what the figures mean."""

from baton.bench.load.measured import Measured
from baton.bench.load.session import ProbeRun, as_probes
from baton.bench.load.settings import BenchSettings
from baton.bench.load.table import COLUMNS, attainment_rows, count_line, latency_rows
from baton.bench.load.target import Abilities
from baton.bench.report.attainment import attainment_curve
from baton.bench.report.distribution import latency_cdfs
from baton.bench.report.page import Section, Table, Tile, write_report
from baton.bench.report.scatter import latency_scatter
from baton.bench.report.timeline import timeline
from baton.goodput.search import Goodput
from baton.workload.request import Workload


def headline(measured: Measured, goodput: Goodput | None) -> str:
    """The one sentence that answers the question."""
    attainment = measured.attainment
    if goodput is not None:
        return f"Goodput for {_targets(measured)}: {goodput.joint}"
    found = measured.throughput
    if attainment is None:
        return (
            f"{found['completed']} requests at {found['request_throughput']:.3g}/s: "
            f"median TTFT {_shown(measured, 'median_ttft_ms')}, "
            f"median TPOT {_shown(measured, 'median_tpot_ms')}"
        )
    return (
        f"{attainment.joint.value:.1%} of {attainment.num_counted} requests met "
        f"{_targets(measured)}: goodput {attainment.goodput.value:.3g} requests/s"
    )


def _targets(measured: Measured) -> str:
    assert measured.attainment is not None
    words = {"ttft": "TTFT", "tpot": "TPOT", "e2el": "E2E"}
    parts = [one.split(":") for one in str(measured.attainment.targets).split()]
    return " and ".join(f"{words[word]} ≤ {value} ms" for word, value in parts)


def _shown(measured: Measured, name: str) -> str:
    value = measured.latency[name]
    return "unknown" if value is None else f"{value:.3g} ms"


def write_page(
    settings: BenchSettings,
    abilities: Abilities,
    workload: Workload,
    measured: Measured,
    *,
    probes: list[ProbeRun] | None,
    goodput: Goodput | None,
    interrupted: bool,
) -> None:
    """Write the page where the settings want it."""
    assert settings.html_out is not None
    arms = {abilities.model: list(measured.records)}
    targets = settings.targets
    sections = [Section(tiles=_tiles(measured))]
    if interrupted:
        sections.append(Section(text="The run was interrupted; this is what was measured until."))
    if probes and targets is not None:
        curve = attainment_curve({abilities.model: as_probes(probes)}, targets.attainment)
        sections.append(Section(title="Where it stops to keep up", figures=(curve,)))
    title = f"Requests at {_rate(probes, workload, measured)}"
    figures = (latency_scatter(arms, targets), latency_cdfs(arms, targets), timeline(arms, targets))
    sections.append(Section(title=title, figures=figures, tables=(_latencies(measured),)))
    sections.append(_foot(settings, abilities, workload, measured))
    label = f"baton bench · {abilities.model}"
    write_report(settings.html_out, label, headline(measured, goodput), sections)


def _rate(probes: list[ProbeRun] | None, workload: Workload, measured: Measured) -> str:
    for probe in probes or ():
        if probe.measured is measured:
            return f"{probe.rate:g}/s"
    return workload.name


def _tiles(measured: Measured) -> tuple[Tile, ...]:
    found = measured.throughput
    tiles = []
    if (attainment := measured.attainment) is not None:
        low, high = attainment.joint.low, attainment.joint.high
        note = f"{low:.1%} to {high:.1%}"
        tiles.append(
            Tile(label="met all targets", value=f"{attainment.joint.value:.1%}", note=note)
        )
        goodput = attainment.goodput
        note = f"{goodput.low:.3g} to {goodput.high:.3g} requests/s"
        tiles.append(Tile(label="goodput", value=f"{goodput.value:.3g}/s", note=note))
    tiles += [
        Tile(
            label="median TTFT",
            value=_shown(measured, "median_ttft_ms"),
            note=f"p99 {_shown(measured, 'p99_ttft_ms')}",
        ),
        Tile(
            label="median TPOT",
            value=_shown(measured, "median_tpot_ms"),
            note=f"p99 {_shown(measured, 'p99_tpot_ms')}",
        ),
        Tile(
            label="output",
            value=f"{found['output_throughput']:,.0f} tokens/s",
            note=f"{found['request_throughput']:.3g} requests/s",
        ),
        Tile(
            label="completed",
            value=f"{found['completed']}",
            note=f"{found['failed']} failed, {found['cancelled']} cancelled",
        ),
    ]
    return tuple(tiles)


def _latencies(measured: Measured) -> Table:
    return Table(
        columns=("milliseconds", *COLUMNS),
        rows=tuple(latency_rows(measured)),
        caption=count_line(measured),
    )


def _foot(
    settings: BenchSettings, abilities: Abilities, workload: Workload, measured: Measured
) -> Section:
    attainment = measured.attainment
    tables = []
    if attainment is not None:
        tables.append(
            Table(
                columns=("attainment", "share and interval"),
                rows=tuple(attainment_rows(attainment)),
                caption=attainment.describe(),
            )
        )
    options = settings.options
    rows = [
        ("server", f"{settings.target.base_url}{settings.target.endpoint.path}"),
        ("model", f"{abilities.model} (context {abilities.max_model_len or 'not said'})"),
        ("workload", workload.source),
        *(("", note) for note in workload.notes),
        ("prompts", abilities.prompt_kind),
        ("counting", str(measured.counting)),
        ("warm-up", f"{measured.num_warmup} requests left out"),
        ("seed", str(options.seed)),
        ("output length", "fixed by ignore_eos" if options.ignore_eos else "up to the model"),
        ("max concurrency", str(options.max_concurrency or "none")),
        ("client lateness", str(measured.lateness)),
        ("served as", ", ".join(f"{n} {mode}" for mode, n in measured.modes.items()) or "not said"),
        *(("failed", f"{num} x {reason}") for reason, num in measured.failures.items()),
    ]
    tables.append(Table(columns=("", ""), rows=tuple(rows)))
    return Section(
        title="What the figures mean",
        text=(
            "TTFT runs from the scheduled time of a request to its first content token, so a wait "
            "in the client counts. TPOT is the mean time per output token after the first. "
            "All figures of attainment share the one denominator below."
        ),
        tables=tuple(tables),
    )
