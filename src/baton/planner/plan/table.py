"""What `baton plan` prints: both arms beside each other, the margin, and the one sentence."""

from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from baton.goodput.interval import Estimate
from baton.planner.plan.at_rate import Latency
from baton.planner.plan.result import ArmReport, PlanResult
from baton.planner.plan.verdict import CLOCKS

GIB = 2**30
MOST_NODES = 16
"""That are drawn."""
Row = tuple[str, Callable[[ArmReport], str]]


def interval(estimate: Estimate, unit: str = "") -> str:
    """Value and bounds."""
    return f"{estimate.value:.4g}{unit} [{estimate.low:.4g}, {estimate.high:.4g}]"


def percent(estimate: Estimate) -> str:
    """A share and its bounds."""
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"


def latency(found: Latency) -> str:
    """Three percentiles."""
    values = (found.p50_ms, found.p90_ms, found.p99_ms)
    return " / ".join("-" if one is None else f"{one:.4g}" for one in values)


def fullest(arm: ArmReport) -> str:
    """The link that K/V fills most."""
    if not arm.paths:
        return "nothing moves"
    path = max(arm.paths, key=lambda one: one.utilization)
    return f"{path.utilization:.1%} of {path.link} ({path.capacity_bytes_per_s / 1e9:.4g} GB/s)"


ROWS: tuple[Row, ...] = (
    ("plan", lambda arm: arm.text),
    ("kind", lambda arm: arm.kind),
    ("GPUs", lambda arm: f"{arm.num_gpus}"),
    ("goodput, requests/s", lambda arm: interval(arm.goodput)),
    ("goodput per GPU", lambda arm: interval(arm.per_gpu)),
    ("binding clock", lambda arm: CLOCKS[arm.binding]),
    ("at, requests/s", lambda arm: f"{arm.at.rate_per_s:.4g} ({arm.at.num_requests} judged)"),
    ("TTFT p50/p90/p99 ms", lambda arm: latency(arm.at.ttft)),
    ("TPOT p50/p90/p99 ms", lambda arm: latency(arm.at.tpot)),
    ("meet TTFT", lambda arm: percent(arm.at.ttft_met)),
    ("meet TPOT", lambda arm: percent(arm.at.tpot_met)),
    ("meet both", lambda arm: percent(arm.at.joint_met)),
    ("K/V moved", lambda arm: f"{arm.at.moved_nbytes_per_s / 1e9:.4g} GB/s"),
    ("exposed transfer", lambda arm: f"{arm.at.exposed_ms:.4g} ms"),
    ("fullest link", fullest),
    ("busiest pool", lambda arm: f"{arm.at.busy_share:.0%} of the time"),
    ("most K/V held", lambda arm: f"{arm.at.max_kv_share:.0%} of a worker's"),
    (
        "residency",
        lambda arm: (
            f"{arm.residency.num_copies} copies, {arm.residency.weight_nbytes / GIB:.4g} GiB "
            f"weights, {arm.residency.kv_nbytes / GIB:.4g} GiB K/V"
        ),
    ),
    ("simulations", lambda arm: f"{arm.num_simulations}"),
)


def print_plan(result: PlanResult, console: Console) -> None:
    """For a person; equal results print equal text."""

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say(f"trace      {result.trace}")
    for note in result.trace_notes:
        say(f"           {note}")
    say(
        f"           mean {result.mean_prompt:.0f} prompt and {result.mean_output:.0f} output "
        f"tokens, its own rate {result.own_rate_per_s:.4g}/s"
    )
    say(f"model      {result.model} on {result.gpus} of {result.system}")
    say(f"targets    {targets_text(result)}")
    say(f"requests   {result.draws}; seeds {', '.join(map(str, result.seeds))}")
    source = result.provenance
    say(f"steps      {source.predictor}: {source.reason}; {source.error}")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    arms = result.arms
    for name in arms:
        table.add_column(name, overflow="fold")
    for title, show in ROWS:
        table.add_row(title, *(show(arm) for arm in arms.values()))
    console.print(table)
    for name, arm in arms.items():
        say(f"{name} stands")
        lines = arm.packing.draw().splitlines()
        for line in lines[:MOST_NODES]:
            say(f"           {line}")
        if len(lines) > MOST_NODES:
            say(f"           and {len(lines) - MOST_NODES} more nodes (--json lists them)")
    say(f"margin     {margin_text(result)}")
    if fewest := fewest_gpus(result):
        say(f"fewest     at {result.asked_rate_per_s:g}/s: {fewest}")
    for warning in result.warnings:
        say(f"WARNING    {warning}")
    say("")
    say(result.verdict.sentence)


def fewest_gpus(result: PlanResult) -> str:
    """Who serves the asked rate on how many GPUs; "" when none was asked for, or nobody does."""
    if result.asked_rate_per_s is None:
        return ""
    return "; ".join(
        f"{name} {arm.num_gpus} GPUs ({arm.text})"
        for name, arm in result.arms.items()
        if arm.at.passes and arm.goodput.value > 0
    )


def targets_text(result: PlanResult) -> str:
    """Both clocks, the share, and the contract in words."""
    words = {"phases": "each clock by itself", "joint": "both at once"}
    clocks = " and ".join(
        f"{CLOCKS[word]} {value} ms"
        for word, _, value in (one.partition(":") for one in result.targets.split())
    )
    return f"{clocks} for {result.attainment:.0%} of the requests, {words[result.contract]}"


def margin_text(result: PlanResult) -> str:
    """Split over colocated, and what it has to exceed."""
    margin = result.verdict.margin
    if margin.ratio is None:
        return "none: only one of the two meets the targets at all, or neither"
    gpus = {arm.num_gpus for arm in result.arms.values()}
    where = (
        ""
        if len(gpus) == 1 or result.colocated is None or result.split is None
        else (f" (on {result.split.num_gpus} and {result.colocated.num_gpus} GPUs)")
    )
    return (
        f"split over colocated{where} {interval(margin.ratio)} over {margin.ratio.num} seeds; must "
        f"exceed {1 + margin.safety:.4g} (safety margin {margin.safety:.0%})"
    )
