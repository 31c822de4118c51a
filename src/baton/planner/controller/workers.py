"""Scenes of real instances: from a plan's split, whose counts the controller then changes."""

import msgspec

from baton.core.ids import Role
from baton.errors import ConfigError
from baton.planner.controller.scene import Scene
from baton.planner.placement.found import Arm


def scene_of(arm: Arm) -> tuple[Scene, int, int]:
    """The arm's worker types on its links, and how many of each it has.

    Workers come and go, so none has a node of its own that others share: each stands alone.
    """
    groups = {group.role: group for group in arm.deployment.groups}
    if Role.PREFILL not in groups or Role.DECODE not in groups or arm.deployment.handoff is None:
        raise ConfigError(f"controller: {arm} has no pools of prefill and decode to balance")
    scene = Scene(
        prefill=msgspec.structs.replace(groups[Role.PREFILL], num_workers=1),
        decode=msgspec.structs.replace(groups[Role.DECODE], num_workers=1),
        handoff=arm.deployment.handoff,
        topology=msgspec.structs.replace(arm.deployment.topology, worker_nodes=()),
        route=arm.deployment.route,
    )
    counts = {group.role: group.num for group in arm.groups}
    return scene, counts[Role.PREFILL], counts[Role.DECODE]
