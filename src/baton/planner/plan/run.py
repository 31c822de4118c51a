"""The whole plan: both searches, both arms at one rate and over many, the verdict."""

from collections.abc import Callable

import msgspec

from baton import __version__
from baton.planner.goodput.draws import Draws
from baton.planner.placement.ask import POLICIES, Ask
from baton.planner.placement.colocated_search import search_colocated
from baton.planner.placement.found import Arm, ArmSearch
from baton.planner.placement.split_search import (
    Phases,
    search_high_affinity,
    search_low_affinity,
    search_phases,
)
from baton.planner.plan.at_rate import AtRate, measure_at
from baton.planner.plan.curve import ArmCurve, Sampling, arm_curve, by_scale, shared_rates
from baton.planner.plan.frontier import frontier
from baton.planner.plan.inputs import Inputs
from baton.planner.plan.provenance import provenance_of
from baton.planner.plan.question import QUICK_POLICIES
from baton.planner.plan.report import arm_report, arm_text, assemble
from baton.planner.plan.result import PlanResult
from baton.planner.plan.verdict import Outcome, Standing, judge

MOST_REQUESTS = 2000
"""Of one simulation of a curve; its intervals say what that is worth."""
STAGES = ("colocated", "phases", "split", "both clocks", "curves", "fewer GPUs", "margins")


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told how far it is."""

    stage: Callable[[int, str], None] = lambda number, name: None
    say: Callable[[str], None] = lambda text: None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Both searches, and what came of them."""

    result: PlanResult
    winner: Arm | None
    runner_up: Arm | None


class _Searches(msgspec.Struct, frozen=True, kw_only=True):
    colocated: ArmSearch
    split: ArmSearch
    phases: Phases


def make_plan(inputs: Inputs, watch: Watch | None = None) -> Found:
    """Deterministic. Raises ConfigError where nothing can be placed or the trace is too short."""
    watch = watch or Watch()
    question = inputs.question
    draws = inputs.draws
    ask = Ask(
        targets=question.targets, contract=question.contract, seeds=question.seeds, draws=draws
    )
    searches = _search(inputs, ask, watch)
    arms = {
        name: found.arms[0]
        for name, found in (("colocated", searches.colocated), ("split", searches.split))
        if found.arms
    }
    watch.stage(3, STAGES[3])
    at = {name: _measured(arm, inputs, ask, draws) for name, arm in arms.items()}
    standings = {
        name: Standing(text=arm_text(arm), answer=arm.answer, at=at[name])
        for name, arm in arms.items()
    }
    verdict = judge(
        standings.get("colocated"),
        standings.get("split"),
        targets=question.targets,
        gpus=question.gpus,
        safety=question.safety,
        rate_per_s=question.rate_per_s,
    )
    watch.stage(4, STAGES[4])
    rates, curves = _curves(arms, inputs, ask, draws)
    watch.stage(5, STAGES[5])
    points = frontier(
        inputs.space,
        inputs.workload,
        ask,
        colocated=searches.colocated.arms,
        split=arms.get("split"),
        phases=searches.phases,
        price_per_hour=inputs.system.price_per_hour,
        say=watch.say,
    )
    reports = {
        name: arm_report(
            arm,
            at[name],
            curves[name].points if name in curves else (),
            searches.colocated.searched if name == "colocated" else searches.split.searched,
        )
        for name, arm in arms.items()
    }
    result = assemble(
        inputs,
        ask,
        draws,
        version=__version__,
        verdict=verdict,
        provenance=provenance_of(inputs, list(arms.values()), list(at.values())),
        reports=reports,
        scales=by_scale(rates, curves, question.targets.attainment) if curves else (),
        frontier=points,
        surface=(),
    )
    ranked = _ranked(arms, result)
    return Found(result=result, winner=ranked[0], runner_up=ranked[1])


def _search(inputs: Inputs, ask: Ask, watch: Watch) -> _Searches:
    question = inputs.question
    policies = POLICIES if question.every_policy else QUICK_POLICIES
    watch.stage(0, STAGES[0])
    colocated = search_colocated(
        inputs.space, inputs.workload, ask, policies=policies, say=watch.say
    )
    watch.stage(1, STAGES[1])
    phases = search_phases(inputs.space, inputs.workload, ask, prunes=True, say=watch.say)
    watch.stage(2, STAGES[2])
    high = search_high_affinity(inputs.space, inputs.workload, ask, phases, say=watch.say)
    low = search_low_affinity(inputs.space, inputs.workload, ask, phases, say=watch.say)
    both = sorted((high, low), key=lambda one: -_goodput(one))
    return _Searches(colocated=colocated, split=both[0], phases=phases)


def _goodput(found: ArmSearch) -> float:
    return found.arms[0].goodput_per_s if found.arms else -1.0


def _measured(arm: Arm, inputs: Inputs, ask: Ask, draws: Draws) -> AtRate:
    """At the rate that was asked for, else at its goodput, else where requests are alone."""
    question = inputs.question
    rate = question.rate_per_s or arm.goodput_per_s or _alone(arm)
    return measure_at(
        arm,
        inputs.workload,
        rate,
        targets=question.targets,
        contract=question.contract,
        draws=draws,
        rule=ask.rule,
        seeds=ask.seeds,
        num_requests=_enough(arm, inputs, draws),
    )


def _alone(arm: Arm) -> float:
    """The lowest rate that the search tried."""
    return arm.num_cells * min(probe.rate_per_s for probe in arm.cell.probes)


def _enough(arm: Arm, inputs: Inputs, draws: Draws) -> int:
    most = MOST_REQUESTS if draws.resamples else min(MOST_REQUESTS, len(inputs.workload))
    return min(most, max(400, arm.cell.requests.per_seed))


def _curves(
    arms: dict[str, Arm], inputs: Inputs, ask: Ask, draws: Draws
) -> tuple[list[float], dict[str, ArmCurve]]:
    rates = shared_rates([arm.goodput_per_s for arm in arms.values()])
    if not rates:
        return [], {}
    sampling = Sampling(
        targets=ask.targets,
        contract=ask.contract,
        draws=draws,
        rule=ask.rule,
        seeds=ask.seeds,
        num_requests=max(_enough(arm, inputs, draws) for arm in arms.values()),
    )
    return rates, {
        name: arm_curve(arm, inputs.workload, rates, sampling) for name, arm in arms.items()
    }


def _ranked(arms: dict[str, Arm], result: PlanResult) -> list[Arm | None]:
    """The winner of the verdict first; a deployment of the other one stands beside it."""
    outcome = result.verdict.outcome
    names = ["split", "colocated"] if outcome is Outcome.SPLIT else ["colocated", "split"]
    found = [arms[name] for name in names if name in arms]
    if outcome is Outcome.NOTHING:
        found.sort(key=lambda arm: -arm.goodput_per_s)
    return [*found, None, None][:2]
