"""From an arm that was searched to the blueprint that is deployed."""

from baton.core.ids import Role
from baton.planner.deploy.blueprint import Blueprint, Pool, Stage
from baton.planner.placement.found import Arm

_LETTERS = {Role.PREFILL: "p", Role.DECODE: "d", Role.MIXED: "m"}


def blueprint_of(arm: Arm) -> Blueprint:
    """Pools with their counts over all parts, stages where the packing put them."""
    pools = tuple(
        Pool(
            role=group.role,
            num_workers=group.num,
            parallel=group.parallel,
            kv_tokens=group.kv_tokens,
            batch_policy=group.batch_policy,
            max_batch_tokens=group.max_batch_tokens,
            max_num_seqs=group.max_num_seqs,
            block_size=group.block_size,
        )
        for group in arm.groups
    )
    numbers = {
        name: number for pool in pools for number, name in enumerate(_instances(arm, pool.role))
    }
    letters = {_LETTERS[pool.role]: at for at, pool in enumerate(pools)}
    stages = []
    for node, placed in enumerate(arm.packing.nodes):
        used = 0
        for one in placed:
            stages.append(
                Stage(
                    pool=letters[one.instance[0]],
                    worker=numbers[one.instance],
                    stage=one.stage,
                    node=node,
                    gpus=tuple(range(used, used + one.num_gpus)),
                )
            )
            used += one.num_gpus
    return Blueprint(pools=pools, stages=tuple(stages), route=arm.deployment.route)


def _instances(arm: Arm, role: Role) -> list[str]:
    """Names of a role's instances, in the order in which they are numbered."""
    names = {
        one.instance
        for node in arm.packing.nodes
        for one in node
        if one.instance[0] == _LETTERS[role]
    }
    return sorted(names, key=lambda name: tuple(map(int, name[1:].split("."))))
