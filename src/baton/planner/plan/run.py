"""The whole plan: both searches, both arms at one rate and over many, the verdict."""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from baton import __version__
from baton.errors import ConfigError
from baton.goodput.search import Bound
from baton.planner.goodput.draws import Draws
from baton.planner.goodput.find import search
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
from baton.planner.plan.closest import ALONE_PER_S, closest_colocated, closest_split
from baton.planner.plan.curve import ArmCurve, Sampling, arm_curve, by_scale, shared_rates
from baton.planner.plan.fewest import fewest_colocated, fewest_split, num_requests_at
from baton.planner.plan.fit import fit_of
from baton.planner.plan.frontier import frontier
from baton.planner.plan.inputs import Inputs
from baton.planner.plan.judge import Asked, judge
from baton.planner.plan.parts import parts_of, repeated_arm
from baton.planner.plan.provenance import provenance_of
from baton.planner.plan.question import QUICK_DEPLOYMENTS, QUICK_POLICIES, THOROUGH_DEPLOYMENTS
from baton.planner.plan.report import arm_report, arm_text, assemble, times
from baton.planner.plan.result import FrontierPoint, PlanResult, SurfaceCell
from baton.planner.plan.sensitivity import surface_of
from baton.planner.plan.verdict import Outcome, Standing, Verdict

Given = TypeVar("Given")
Result = TypeVar("Result")
SEARCH_SEEDS = 3
"""Configurations are ranked with so many of the seeds, the two that are compared get all."""
RANK_PRECISION, FINAL_PRECISION = 0.05, 0.02
NEAR, MOST_RIVALS = 0.1, 3
"""Configurations of a kind whose ranks are so close to the best are compared once more, with all
seeds and the final precision, and so many of them."""
MOST_REQUESTS = 100_000
"""Of one simulation."""
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
    question, draws = inputs.question, inputs.draws
    ask = _ask(inputs)
    parts = parts_of(inputs.space)
    part = msgspec.structs.replace(inputs, space=parts.space)
    searches = _search(part, ask, watch)
    watch.stage(3, STAGES[3])
    ask = msgspec.structs.replace(ask, seeds=question.seeds)
    best = _chosen(searches, part, ask)
    fewest = _fewest(best, searches, part, ask, parts.num)
    rivals = _rivals(best, fewest, searches, parts.num)
    arms = _each(rivals, lambda some: _best_of(some, inputs, ask))
    at = _each(arms, lambda arm: _measured(arm, inputs, ask, draws))
    verdict = _judged(arms, at, inputs)
    watch.stage(4, STAGES[4])
    rates, curves = _curves(arms, inputs, ask, draws)
    few = msgspec.structs.replace(ask, seeds=question.seeds[:SEARCH_SEEDS])
    watch.stage(5, STAGES[5])
    points = _frontier(best, searches, part, few, parts.num, watch)
    watch.stage(6, STAGES[6])
    surface = _surface(arms, at, inputs, few)
    result = assemble(
        inputs,
        ask,
        draws,
        version=__version__,
        verdict=verdict,
        provenance=provenance_of(inputs, list(arms.values()), list(at.values())),
        reports={
            name: arm_report(
                arm,
                at[name],
                curves[name].points if name in curves else (),
                searches.colocated.searched if name == "colocated" else searches.split.searched,
                question.targets,
            )
            for name, arm in arms.items()
        },
        scales=by_scale(rates, curves, question.targets.attainment) if curves else (),
        frontier=points,
        surface=surface,
        parts=parts,
    )
    ranked = _ranked(arms, result)
    return Found(result=result, winner=ranked[0], runner_up=ranked[1])


def _ask(inputs: Inputs) -> Ask:
    """While configurations are ranked."""
    question = inputs.question
    return Ask(
        targets=question.targets,
        contract=question.contract,
        seeds=question.seeds[:SEARCH_SEEDS],
        draws=inputs.draws,
        num_requests=question.num_requests,
        most_requests=MOST_REQUESTS,
        final_precision=RANK_PRECISION,
        most_simulated=THOROUGH_DEPLOYMENTS if question.thorough else QUICK_DEPLOYMENTS,
    )


def _judged(arms: Mapping[str, Arm], at: Mapping[str, AtRate], inputs: Inputs) -> Verdict:
    question = inputs.question
    standings = {
        name: Standing(text=arm_text(arm), answer=arm.answer, num_gpus=arm.num_gpus, at=at[name])
        for name, arm in arms.items()
    }
    return judge(
        standings.get("colocated"),
        standings.get("split"),
        Asked(
            targets=question.targets,
            contract=question.contract,
            gpus=question.gpus,
            safety=question.safety,
            rate_per_s=question.rate_per_s,
            fit=fit_of(inputs.workload, inputs.space),
        ),
    )


def _frontier(
    best: Mapping[str, Arm],
    searches: _Searches,
    inputs: Inputs,
    ask: Ask,
    num_parts: int,
    watch: Watch,
) -> tuple[FrontierPoint, ...]:
    """Sizes within one part, and the whole."""
    return frontier(
        inputs.space,
        inputs.workload,
        ask,
        colocated=[repeated_arm(arm, num_parts) for arm in searches.colocated.arms],
        split=repeated_arm(best["split"], num_parts) if "split" in best else None,
        phases=searches.phases,
        price_per_hour=inputs.system.price_per_hour,
        say=watch.say,
    )


def _search(inputs: Inputs, ask: Ask, watch: Watch) -> _Searches:
    question = inputs.question
    policies = POLICIES if question.thorough else QUICK_POLICIES
    watch.stage(0, STAGES[0])
    colocated = search_colocated(
        inputs.space, inputs.workload, ask, policies=policies, say=watch.say
    )
    watch.stage(1, STAGES[1])
    has_nodes = inputs.space.cluster.num_nodes > 1
    phases = search_phases(inputs.space, inputs.workload, ask, prunes=not has_nodes, say=watch.say)
    watch.stage(2, STAGES[2])
    found = [search_high_affinity(inputs.space, inputs.workload, ask, phases, say=watch.say)]
    if has_nodes:  # on one node both are the same
        found.append(search_low_affinity(inputs.space, inputs.workload, ask, phases, say=watch.say))
    split = max(found, key=lambda one: one.best.goodput_per_s if one.best else -1.0)
    return _Searches(colocated=colocated, split=split, phases=phases)


def _chosen(searches: _Searches, inputs: Inputs, ask: Ask) -> dict[str, Arm]:
    """The best of each kind, or what comes closest where none meets the targets."""
    colocated, split = searches.colocated.best, searches.split.best
    if colocated is None:
        colocated = closest_colocated(inputs.space, inputs.workload, ask)
    if split is None:
        split = closest_split(inputs.space, inputs.workload, ask)
    both = {"colocated": colocated, "split": split}
    return {name: arm for name, arm in both.items() if arm is not None}


def _fewest(
    best: Mapping[str, Arm], searches: _Searches, inputs: Inputs, ask: Ask, num_parts: int
) -> dict[str, Arm]:
    """As few parts of the cluster, and GPUs of each, as serve the rate that is asked for.

    Nothing without a rate, or where all of them are not enough.
    """
    rate, space, workload = inputs.question.rate_per_s, inputs.space, inputs.workload
    if rate is None:
        return {}

    def few(name: str, arm: Arm, part_per_s: float) -> Arm | None:
        if name == "colocated":
            arms = searches.colocated.arms
            return fewest_colocated(space, workload, ask, arms, part_per_s)
        return fewest_split(space, workload, ask, searches.phases, arm.num_gpus, part_per_s)

    found = {}
    for name, arm in best.items():
        if not arm.goodput_per_s > 0:
            continue
        least = math.ceil(rate / arm.goodput_per_s)
        # Ranks are on the high side, so the parts that they promise to do may be one too few.
        for num in range(least, min(num_parts, least + 1) + 1):
            part = few(name, arm, rate / num)
            if part is not None:
                found[name] = repeated_arm(part, num)
                break
    return found


def _rivals(
    best: Mapping[str, Arm], fewest: Mapping[str, Arm], searches: _Searches, num_parts: int
) -> dict[str, list[Arm]]:
    """Those whose rank is too close to the best one's to tell them apart; where fewer GPUs do,
    that alone."""
    found = {}
    for name, arm in best.items():
        least_arm = fewest.get(name)
        if least_arm is not None and least_arm.num_gpus < num_parts * arm.num_gpus:
            found[name] = [least_arm]
            continue
        arms = searches.colocated.arms if name == "colocated" else searches.split.arms
        least = (1 - NEAR) * arm.goodput_per_s
        near = [one for one in arms if one.is_refined and one.goodput_per_s >= least > 0]
        rivals = [repeated_arm(one, num_parts) for one in near[:MOST_RIVALS] or [arm]]
        found[name] = rivals if least_arm is None else [*rivals, least_arm]
    return found


def _best_of(arms: list[Arm], inputs: Inputs, ask: Ask) -> Arm:
    """Of equals the one with fewer GPUs, then the one that ranked first."""
    refined = [_refined(arm, inputs, ask) for arm in arms]
    return max(refined, key=lambda arm: (arm.goodput_per_s, -arm.num_gpus))


def _each(arms: Mapping[str, Given], run: Callable[[Given], Result]) -> dict[str, Result]:
    """Both arms at once: compiled simulations release the interpreter lock."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(arms, pool.map(run, arms.values()), strict=True))


def _refined(arm: Arm, inputs: Inputs, ask: Ask) -> Arm:
    """The chosen deployment once more, with every seed and on a finer grid."""
    settings = msgspec.structs.replace(ask.final, relative_precision=FINAL_PRECISION)
    answer = search(arm.deployment, inputs.workload, settings)
    if answer.bound is Bound.HIGHEST_PASSES:
        raise ConfigError(
            f"{arm_text(arm)}: {answer.requests.per_seed} requests at twice the rate that it works "
            f"off end before enough of them miss {inputs.question.targets}, so no rate fails; give "
            f"--requests more than {answer.requests.per_seed}, a longer trace, or tighter targets"
        )
    factor = answer.rate.value / arm.cell.rate.value if arm.cell.rate.value > 0 else 0.0
    return msgspec.structs.replace(
        arm, cell=answer, paths=tuple(times(path, factor) for path in arm.paths)
    )


def _measured(arm: Arm, inputs: Inputs, ask: Ask, draws: Draws) -> AtRate:
    """At the rate that was asked for, else at its goodput, else where requests are alone."""
    question = inputs.question
    rate = question.rate_per_s or arm.goodput_per_s or ALONE_PER_S
    return measure_at(
        arm,
        inputs.workload,
        rate,
        targets=question.targets,
        contract=question.contract,
        draws=draws,
        rule=ask.rule,
        seeds=ask.seeds,
        num_requests=_enough(arm)
        if question.rate_per_s is None
        else num_requests_at(rate / arm.num_cells, inputs.workload, ask),
    )


def _enough(arm: Arm) -> int:
    """As many as its goodput was found with: near saturation the length of a run matters."""
    return arm.cell.requests.per_seed


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
        seeds=ask.seeds[:SEARCH_SEEDS],
        num_requests=max(_enough(arm) for arm in arms.values()),
    )
    return rates, _each(arms, lambda arm: arm_curve(arm, inputs.workload, rates, sampling))


def _surface(
    arms: Mapping[str, Arm], at: Mapping[str, AtRate], inputs: Inputs, ask: Ask
) -> tuple[SurfaceCell, ...]:
    """Of both arms; a split that is missing has no margin."""
    if len(arms) < 2:
        return ()
    return surface_of(arms["colocated"], arms["split"], at["colocated"], inputs, ask)


def _ranked(arms: dict[str, Arm], result: PlanResult) -> list[Arm | None]:
    """The winner of the verdict first; a deployment of the other one stands beside it."""
    outcome = result.verdict.outcome
    names = ["split", "colocated"] if outcome is Outcome.SPLIT else ["colocated", "split"]
    found = [arms[name] for name in names if name in arms]
    if outcome is Outcome.NOTHING:
        found.sort(key=lambda arm: -arm.goodput_per_s)
    return [*found, None, None][:2]
