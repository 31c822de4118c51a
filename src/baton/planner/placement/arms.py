"""From a chosen plan to a deployment with its place, its paths and its memory."""

from collections.abc import Sequence

import msgspec

from baton.core.ids import Role
from baton.hardware.parallel import Parallel
from baton.planner.goodput.answer import GoodputAnswer
from baton.planner.goodput.find import search
from baton.planner.placement.ask import Ask, Say, silent
from baton.planner.placement.deployments import free_topology, paired_topology, split
from baton.planner.placement.found import COLOCATED, Arm, ArmGroup
from baton.planner.placement.packing import Instances, Packing, Placed
from baton.planner.placement.paths import PathLoad, path_loads
from baton.planner.placement.phases import PhasePlan
from baton.planner.placement.residency import Residency
from baton.planner.placement.space import Space
from baton.planner.placement.waves import in_waves
from baton.sim.fast.deployment import Deployment, Topology, WorkerGroup
from baton.sim.fast.workload import FastWorkload

PAIR = 2
"""Deployments that are refined at once: fixed, so that any machine refines the same ones."""


class SplitBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A split plan on a packing, which repeats `num_cells` times."""

    kind: str
    space: Space
    plan: PhasePlan
    """Of one cell."""
    packing: Packing
    """Of one cell."""
    request_nbytes: float
    """Mean K/V of a request."""
    num_segments: int = 0
    """Into which both pipelines are cut, each on one node; 0: placed freely."""
    num_cells: int = 1

    @property
    def prefill(self) -> Instances:
        """Of one cell."""
        plan = self.plan
        return Instances(letter="p", parallel=plan.prefill.parallel, num=plan.num_prefill)

    @property
    def decode(self) -> Instances:
        """Of one cell."""
        plan = self.plan
        return Instances(letter="d", parallel=plan.decode.parallel, num=plan.num_decode)

    @property
    def num_gpus(self) -> int:
        """Of all cells."""
        return self.num_cells * self.plan.num_gpus

    @property
    def bound_per_s(self) -> float:
        """Of all cells, before slack: the slow pool, or the first link that is full."""
        return self.num_cells * min(self.plan.goodput_per_s, self.path_limit_per_s)

    @property
    def path_limit_per_s(self) -> float:
        """Of one cell."""
        return 1.0 / max(one.utilization for one in self.loads(1.0))

    def loads(self, rate_per_s: float) -> list[PathLoad]:
        """Of every link of one cell that carries K/V."""
        demand = rate_per_s * self.request_nbytes
        return path_loads(self.packing, self.prefill, self.decode, self.space.cluster, demand)

    def deployment(self) -> Deployment:
        """Of one cell."""
        plan, space = self.plan, self.space
        return split(
            space,
            space.candidate(plan.prefill.parallel),
            plan.num_prefill,
            space.candidate(plan.decode.parallel),
            plan.num_decode,
            self._topology(),
            plan.prefill.max_batch_tokens,
        )

    def arm(self, deployment: Deployment, answer: GoodputAnswer) -> Arm:
        """With what its simulation found."""
        groups = _groups(
            deployment, (self.plan.prefill.parallel, self.plan.decode.parallel), self.num_cells
        )
        return Arm(
            kind=self.kind,
            groups=groups,
            num_cells=self.num_cells,
            deployment=deployment,
            cell=answer,
            packing=repeated(self.packing, self.num_cells),
            paths=tuple(self.loads(answer.rate.value)),
            residency=residency_of(self.space, groups),
            bound_per_s=self.bound_per_s,
        )

    def _topology(self) -> Topology:
        cluster, latency_us = self.space.cluster, self.space.serving.latency_us
        if self.num_segments:
            return paired_topology(cluster, self.plan.num_copies, self.num_segments, latency_us)
        return free_topology(cluster, self.packing, self.prefill, self.decode, latency_us)


def colocated_arm(
    space: Space,
    parallel: Parallel,
    deployment: Deployment,
    answer: GoodputAnswer,
    packing: Packing,
    bound_per_s: float,
) -> Arm:
    """Instances that run both phases, so nothing moves."""
    groups = _groups(deployment, (parallel,), 1)
    return Arm(
        kind=COLOCATED,
        groups=groups,
        num_cells=1,
        deployment=deployment,
        cell=answer,
        packing=packing,
        paths=(),
        residency=residency_of(space, groups),
        bound_per_s=bound_per_s,
    )


def in_order(arms: Sequence[Arm], ask: Ask) -> list[Arm]:
    """Best first by the objective; of equals the one with fewer GPUs."""
    return sorted(
        arms,
        key=lambda one: (-ask.value(one.goodput_per_s, one.num_gpus), one.num_gpus, str(one)),
    )


def refined(arms: Sequence[Arm], workload: FastWorkload, ask: Ask, say: Say = silent) -> list[Arm]:
    """The first ones simulated at full length and in order again; behind them the others.

    Ranks are on the high side: refining ends when the next rank is below what was found, or after
    as many as the ask allows.
    """
    ranked = in_order(arms, ask)
    waiting = [one for one in ranked if one.goodput_per_s > 0]
    found: list[Arm] = []

    def run(arm: Arm) -> GoodputAnswer:
        return search(arm.deployment, workload, ask.final)

    def after(arm: Arm, answer: GoodputAnswer) -> None:
        found.append(msgspec.structs.replace(arm, cell=answer, is_refined=True))
        say(f"{found[-1]}: {found[-1].answer}")

    while waiting and len(found) < ask.most_refined:
        best = max((_worth(one, ask) for one in found), default=0.0)
        if _worth(waiting[0], ask) <= best:
            break
        wave = waiting[: min(PAIR, ask.most_refined - len(found))]
        waiting = waiting[len(wave) :]
        in_waves(wave, run, after)
    return [*in_order(found, ask), *ranked[len(found) :]]


def _worth(arm: Arm, ask: Ask) -> float:
    return ask.value(arm.goodput_per_s, arm.num_gpus)


def residency_of(space: Space, groups: Sequence[ArmGroup]) -> Residency:
    """Model copies and K/V pools of all instances."""
    return Residency(
        num_copies=sum(group.num for group in groups),
        copy_nbytes=space.copy_nbytes,
        kv_nbytes=sum(group.num * group.kv_tokens for group in groups) * space.token_nbytes,
    )


def repeated(packing: Packing, num: int) -> Packing:
    """The nodes of equal cells, as many pieces on a node as fit in order."""
    nodes: list[list[Placed]] = []
    for cell in range(num):
        for node in packing.nodes:
            piece = [_in_cell(one, cell, num) for one in node]
            size = sum(one.num_gpus for one in piece)
            room = next(
                (
                    other
                    for other in nodes
                    if sum(one.num_gpus for one in other) + size <= packing.gpus_per_node
                ),
                None,
            )
            if room is None:
                nodes.append(piece)
            else:
                room += piece
    return Packing(gpus_per_node=packing.gpus_per_node, nodes=tuple(tuple(node) for node in nodes))


def _in_cell(placed: Placed, cell: int, num: int) -> Placed:
    if num == 1:
        return placed
    return msgspec.structs.replace(placed, instance=f"{placed.instance}.{cell}")


def _groups(
    deployment: Deployment, parallels: Sequence[Parallel], num_cells: int
) -> tuple[ArmGroup, ...]:
    return tuple(
        _group(group, parallel, num_cells)
        for group, parallel in zip(deployment.groups, parallels, strict=True)
    )


def _group(group: WorkerGroup, parallel: Parallel, num_cells: int) -> ArmGroup:
    return ArmGroup(
        role=Role(group.role),
        parallel=parallel,
        num=group.num_workers * num_cells,
        kv_tokens=group.kv_tokens,
        batch_policy=group.batch_policy,
        max_batch_tokens=group.max_batch_tokens,
        max_num_seqs=group.max_num_seqs,
        block_size=group.block_size,
    )
