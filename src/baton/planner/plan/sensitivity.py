"""Net margin of splitting over link bandwidth and load, between the two arms that were found."""

from baton.planner.margin import Axis, Cell, CellMargin, MarginAsk, find_surface, side_of
from baton.planner.placement.ask import Ask
from baton.planner.placement.found import Arm
from baton.planner.plan.at_rate import AtRate
from baton.planner.plan.inputs import Inputs
from baton.planner.plan.result import SurfaceCell

LINKS_GBYTES_PER_S = (0.1, 0.5, 2.0, 10.0, 50.0, 400.0)
LOADS = (0.25, 0.5, 0.75, 1.0)
"""Of the better arm's goodput."""
NUM_REQUESTS = 300
GIGA, US_PER_MS = 1e9, 1e3


def surface_of(
    colocated: Arm, split: Arm, at: AtRate, inputs: Inputs, ask: Ask
) -> tuple[SurfaceCell, ...]:
    """`at` is what colocated does: its mean time of a request scales the safety margin."""
    best = max(colocated.goodput_per_s, split.goodput_per_s)
    if not best > 0:
        return ()
    found = find_surface(
        side_of(colocated),
        side_of(split),
        inputs.workload,
        Cell(rate_per_s=best),
        Axis(field="link_bytes_per_s", values=tuple(one * GIGA for one in LINKS_GBYTES_PER_S)),
        Axis(field="rate_per_s", values=tuple(share * best for share in LOADS)),
        MarginAsk(
            targets=ask.targets,
            safety_margin_us=inputs.question.safety * _request_us(at, inputs),
            seeds=ask.seeds,
            num_requests=NUM_REQUESTS,
            rule=ask.rule,
        ),
    )
    return tuple(_cell(one, best) for row in found.cells for one in row)


def _request_us(at: AtRate, inputs: Inputs) -> float:
    tokens = float(inputs.workload.num_output.mean())
    return ((at.ttft.mean_ms or 0.0) + (at.tpot.mean_ms or 0.0) * (tokens - 1)) * US_PER_MS


def _cell(found: CellMargin, best_per_s: float) -> SurfaceCell:
    verdict, margin = found.verdict, found.verdict.margin
    return SurfaceCell(
        link_gbytes_per_s=(found.cell.link_bytes_per_s or 0.0) / GIGA,
        load_share=found.cell.rate_per_s / best_per_s,
        delta_ms=margin.delta_us / US_PER_MS,
        low_ms=found.delta.low / US_PER_MS,
        high_ms=found.delta.high / US_PER_MS,
        saved_ms=margin.interference_saved_us / US_PER_MS,
        exposed_ms=margin.exposed_transfer_us / US_PER_MS,
        route_ms=margin.route_delta_us / US_PER_MS,
        failure_ms=margin.failure_penalty_us / US_PER_MS,
        safety_ms=verdict.safety_margin_us / US_PER_MS,
        passes=verdict.ttft_passes and verdict.tpot_passes,
        enables=verdict.enable,
    )
