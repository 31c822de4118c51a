"""The best pool of colocated instances: every cut, batch policy and token budget (0x0D).

Single instances are ranked first; whole pools follow in the order of their sums.
"""

from collections.abc import Sequence

import msgspec

from baton.planner.goodput.answer import GoodputAnswer
from baton.planner.goodput.find import search
from baton.planner.placement.arms import colocated_arm, refined
from baton.planner.placement.ask import (
    CHUNK_BUDGETS,
    CHUNKED,
    POLICIES,
    WHOLE_BUDGETS,
    Ask,
    Objective,
    Say,
    silent,
)
from baton.planner.placement.best_first import Bounded, best_first
from baton.planner.placement.deployments import mixed_pool
from baton.planner.placement.found import Arm, ArmSearch, Searched
from baton.planner.placement.packing import CannotPlace, Instances, Packing, pack_free
from baton.planner.placement.space import Candidate, Space
from baton.planner.placement.waves import in_waves
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.workload import FastWorkload


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """As many equal instances as the cluster has room for."""

    candidate: Candidate
    num: int
    batch_policy: str
    max_batch_tokens: int
    packing: Packing

    @property
    def num_gpus(self) -> int:
        """Of all instances."""
        return self.num * self.candidate.gpus

    def deployment(self, space: Space, num: int) -> Deployment:
        """So many of them."""
        return mixed_pool(
            self.candidate,
            space.serving,
            num,
            batch_policy=self.batch_policy,
            max_batch_tokens=self.max_batch_tokens,
        )


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A pool and what one instance of it served."""

    pool: Pool
    answer: GoodputAnswer


def search_colocated(
    space: Space,
    workload: FastWorkload,
    ask: Ask,
    *,
    policies: Sequence[str] = POLICIES,
    say: Say = silent,
) -> ArmSearch:
    """Of all policies, or of some."""
    pools, num_unplaceable = _pools(space, policies, ask)
    ranked, num_dropped, num_simulations = _ranked(pools, space, workload, ask, say)

    def simulate(one: Bounded[Ranked], incumbent_per_s: float) -> Arm:
        pool, answer = one.plan.pool, one.plan.answer
        deployment = pool.deployment(space, pool.num)
        if not one.is_exact:
            answer = search(deployment, workload, ask.ranking(), incumbent_per_s)
        arm = colocated_arm(
            space, pool.candidate.parallel, deployment, answer, pool.packing, one.bound_per_s
        )
        say(f"{arm}: {answer}")
        return arm

    arms, tally = best_first(ranked, ask, simulate, lambda arm: arm.goodput_per_s)
    arms = refined(arms, workload, ask, say)
    left = len(ranked) - tally.num_simulated - tally.num_pruned
    gap = f"{left} more may be up to {tally.gap:.1%} better" if tally.gap else "none is left"
    num_pruned = tally.num_pruned + num_dropped
    return ArmSearch(
        arms=tuple(arms),
        searched=Searched(
            num_configurations=len(pools) + num_unplaceable,
            num_unplaceable=num_unplaceable,
            num_pruned=num_pruned,
            num_deployments=tally.num_simulated,
            num_simulations=num_simulations + sum(one.cell.num_simulations for one in arms),
            gap=tally.gap,
            statement=(
                f"{len(pools)} pools of {len(policies)} batch policies with their token budgets "
                f"over {len(space.candidates)} cuts, {num_unplaceable} cuts without a place, "
                f"{num_pruned} dropped because their instances, plus {ask.slack:.0%}, stay below "
                f"the best, {tally.num_simulated} simulated as a whole; {gap}"
            ),
        ),
    )


def budgets(policy: str) -> tuple[int, ...]:
    """Token budgets of a step that a policy is tried with."""
    return CHUNK_BUDGETS if policy in CHUNKED else WHOLE_BUDGETS


def _pools(space: Space, policies: Sequence[str], ask: Ask) -> tuple[list[Pool], int]:
    pools, num_unplaceable = [], 0
    placed = []
    for candidate in space.candidates:
        most = space.cluster.num_gpus // candidate.gpus
        if most < 1:
            continue
        num = most if ask.objective is Objective.TOTAL else 1
        instances = Instances(letter="m", parallel=candidate.parallel, num=num)
        try:
            packing = pack_free((instances,), space.cluster.num_nodes, space.cluster.gpus_per_node)
        except CannotPlace:
            num_unplaceable += 1
            continue
        placed.append((candidate, num, packing))
    for policy in policies:
        for budget in budgets(policy):
            pools += [
                Pool(
                    candidate=candidate,
                    num=num,
                    batch_policy=policy,
                    max_batch_tokens=budget,
                    packing=packing,
                )
                for candidate, num, packing in placed
            ]
    return pools, num_unplaceable


def _ranked(
    pools: Sequence[Pool], space: Space, workload: FastWorkload, ask: Ask, say: Say
) -> tuple[list[Bounded[Ranked]], int, int]:
    """By one instance's goodput times their number; those surely below the best are dropped."""
    settings = ask.ranking()
    found: list[Bounded[Ranked]] = []
    num_dropped = num_simulations = 0
    best = 0.0

    def run(pool: Pool) -> GoodputAnswer:
        least = best / (1 + ask.slack) / ask.value(1.0, pool.num_gpus) / pool.num
        return search(pool.deployment(space, 1), workload, settings, least)

    def after(pool: Pool, answer: GoodputAnswer) -> None:
        nonlocal best, num_dropped, num_simulations
        num_simulations += answer.num_simulations
        bound = answer.rate.value * pool.num
        if bound > 0:
            found.append(
                Bounded(
                    plan=Ranked(pool=pool, answer=answer),
                    bound_per_s=bound,
                    num_gpus=pool.num_gpus,
                    is_exact=pool.num == 1,
                )
            )
        else:
            num_dropped += 1
        best = max(best, ask.value(bound, pool.num_gpus))
        say(
            f"{pool.num} x {pool.candidate.parallel} {pool.batch_policy} "
            f"{pool.max_batch_tokens}: {answer}"
        )

    in_waves(pools, run, after)
    return found, num_dropped, num_simulations
