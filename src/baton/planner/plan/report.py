"""From arms and measurements to the plain values of the result."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from baton.goodput.slo import SLOTargets
from baton.planner.goodput.answer import Length
from baton.planner.goodput.draws import Arrivals, Draws
from baton.planner.placement.ask import Ask
from baton.planner.placement.found import Arm, Searched
from baton.planner.placement.paths import PathLoad
from baton.planner.plan.at_rate import AtRate
from baton.planner.plan.fit import fit_of
from baton.planner.plan.inputs import Inputs
from baton.planner.plan.parts import Parts
from baton.planner.plan.result import ArmReport, PlanResult
from baton.planner.plan.verdict import binding_of

BURSTY_CV = 1.3
FULL = 0.9
"""Share of K/V memory above which preemptions are near."""
FEW = 100
"""Requests of a trace, too few to stand for a workload."""


def arm_report(
    arm: Arm, at: AtRate, curve: tuple[AtRate, ...], searched: Searched, targets: SLOTargets
) -> ArmReport:
    """One arm."""
    answer = arm.answer
    sent = sum(path.demand_bytes_per_s for path in arm.paths if path.leaves)
    # Links are those of one part, and carry its share of the K/V that the simulation moved.
    moved = at.moved_nbytes_per_s / arm.num_cells
    paths = tuple(times(path, moved / sent if sent else 0.0) for path in arm.paths)
    return ArmReport(
        kind=arm.kind,
        text=arm_text(arm),
        groups=arm.groups,
        num_gpus=arm.num_gpus,
        num_cells=arm.num_cells,
        goodput=answer.rate,
        per_gpu=answer.per_gpu,
        binding=binding_of(answer, at, targets),
        at=at,
        curve=curve,
        paths=paths,
        residency=arm.residency,
        packing=arm.packing,
        searched=searched,
        requests=answer.requests,
        num_simulations=answer.num_simulations,
        length=answer.length,
    )


def times(path: PathLoad, factor: float) -> PathLoad:
    """The same link at another rate."""
    return msgspec.structs.replace(path, demand_bytes_per_s=path.demand_bytes_per_s * factor)


def arm_text(arm: Arm) -> str:
    """Its groups in words."""
    return " + ".join(str(group) for group in arm.groups)


def assemble(
    inputs: Inputs,
    ask: Ask,
    draws: Draws,
    *,
    reports: Mapping[str, ArmReport],
    parts: Parts,
    **found: Any,
) -> PlanResult:
    """Everything together; `found` are the fields that come as they are."""
    question, workload = inputs.question, inputs.workload
    return PlanResult(
        model=inputs.model.name,
        system=f"{inputs.system.name} ({inputs.space.cluster})",
        trace=workload.source,
        trace_notes=inputs.notes,
        num_requests=len(workload),
        mean_prompt=float(workload.num_prompt.mean()),
        mean_output=float(workload.num_output.mean()),
        longest=inputs.longest,
        own_rate_per_s=inputs.own_rate_per_s,
        targets=str(question.targets),
        attainment=question.targets.attainment,
        contract=str(question.contract),
        draws=str(draws),
        rule=str(ask.rule),
        gpus=question.gpus,
        asked_rate_per_s=question.rate_per_s,
        seeds=ask.seeds,
        colocated=reports.get("colocated"),
        split=reports.get("split"),
        skipped=tuple(f"{one.parallel}: {one.why}" for one in inputs.space.skipped),
        warnings=tuple(filter(None, (parts.warning, *_warnings(inputs, draws, reports)))),
        **found,
    )


def _warnings(inputs: Inputs, draws: Draws, reports: Mapping[str, ArmReport]) -> list[str]:
    found = [inputs.choice.warning] if inputs.choice.warning else []
    if len(inputs.workload) < FEW:
        found.append(
            f"the trace has {len(inputs.workload)} requests, and all that is simulated is drawn "
            "from their lengths"
        )
    fit = fit_of(inputs.workload, inputs.space)
    if fit.num_long:
        found.append(f"{fit}, and miss in every plan; {fit.remedy}")
    cv = _gap_cv(inputs)
    if draws.arrivals is not Arrivals.TRACE and cv > BURSTY_CV * draws.cv:
        found.append(
            f"the trace's own gaps are burstier (CV {cv:.2g}) than the {draws.arrivals} arrivals "
            "that were simulated; --arrivals trace keeps them"
        )
    for name, arm in reports.items():
        at = arm.at
        if arm.goodput.value > 0 and arm.length is not Length.SETTLED:
            found.append(f"{name}: {_unsettled(arm)}")
        if at.extrapolated_share > 0:
            found.append(
                f"{name}: {at.extrapolated_share:.1%} of its steps are beyond what was measured"
            )
        if at.num_unserved:
            found.append(f"{name}: {at.num_unserved} requests got no answer and count as missed")
        if at.max_kv_share > FULL:
            found.append(f"{name}: a worker held {at.max_kv_share:.0%} of its K/V memory")
        if arm.searched.gap > 0:
            found.append(f"{name}: the search is not exhaustive: {arm.searched.statement}")
    return found


def _unsettled(arm: ArmReport) -> str:
    """Why its goodput may be too high, and what to do."""
    return (
        f"its goodput is from runs of {arm.requests.per_seed} requests, {arm.length}: it may be "
        "too high; use a larger --requests, or a longer trace"
    )


def _gap_cv(inputs: Inputs) -> float:
    """Coefficient of variation of the trace's gaps; 0 without any."""
    gaps = np.diff(inputs.workload.arrival_us)
    return float(gaps.std() / gaps.mean()) if len(gaps) and gaps.mean() > 0 else 0.0
