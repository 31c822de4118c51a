"""A cluster of hundreds of GPUs is planned as equal parts of it, each with its own queue."""

import msgspec

from baton.planner.placement.arms import repeated
from baton.planner.placement.found import Arm
from baton.planner.placement.space import Space

MOST_GPUS = 64
"""Of one part: what a search takes grows with the counts that it tries and the rates they serve."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What is searched, and how often the cluster holds it."""

    space: Space
    """Of one part."""
    num: int
    num_left: int
    """GPUs of nodes that make no whole part."""

    @property
    def warning(self) -> str:
        """What is left out of the search; "" for a cluster that is searched as one."""
        if self.num == 1 and not self.num_left:
            return ""
        gpus = self.space.cluster.num_gpus
        left = f", {self.num_left} GPUs are left over" if self.num_left else ""
        if self.num == 1:
            return f"planned as one part of {gpus} GPUs{left}; more than {MOST_GPUS} share no queue"
        return (
            f"planned as {self.num} equal parts of {gpus} GPUs, each with its own queue{left}; one "
            f"queue over all of them would serve no less, and was not searched (--gpus {gpus} is "
            "one part)"
        )


def parts_of(space: Space) -> Parts:
    """The whole cluster, or the largest parts among those that leave the fewest nodes over."""
    cluster = space.cluster
    most = max(1, MOST_GPUS // cluster.gpus_per_node)
    if cluster.num_nodes <= most:
        return Parts(space=space, num=1, num_left=0)
    sizes = range(most, most // 2, -1)
    num_nodes = min(sizes, key=lambda size: (cluster.num_nodes % size, -size))
    num_gpus = num_nodes * cluster.gpus_per_node
    part = msgspec.structs.replace(
        space,
        cluster=msgspec.structs.replace(cluster, num_nodes=num_nodes),
        candidates=tuple(one for one in space.candidates if one.gpus <= num_gpus),
    )
    return Parts(
        space=part,
        num=cluster.num_nodes // num_nodes,
        num_left=cluster.num_nodes % num_nodes * cluster.gpus_per_node,
    )


def repeated_arm(arm: Arm, num: int) -> Arm:
    """So many of it beside each other; links and goodputs are those of each."""
    if num == 1:
        return arm
    residency = arm.residency
    return msgspec.structs.replace(
        arm,
        groups=tuple(msgspec.structs.replace(group, num=group.num * num) for group in arm.groups),
        num_cells=arm.num_cells * num,
        packing=repeated(arm.packing, num),
        residency=msgspec.structs.replace(
            residency,
            num_copies=residency.num_copies * num,
            kv_nbytes=residency.kv_nbytes * num,
        ),
        bound_per_s=arm.bound_per_s * num,
    )
