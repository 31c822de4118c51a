"""What K/V a placement moves over which link, against what the link carries (0x08D).

Payload only: headers, retries and contention with other traffic come on top, so a path that is
too small here is too small for certain.
"""

from collections.abc import Iterator

import msgspec

from baton.errors import ConfigError
from baton.planner.placement.cluster import Cluster
from baton.planner.placement.packing import Instances, Packing

_INTO = "into"


class PathLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One link's payload and capacity, in bytes a second."""

    link: str
    demand_bytes_per_s: float
    capacity_bytes_per_s: float

    @property
    def is_feasible(self) -> bool:
        """A demand that fills a link exactly has no room for anything else, and passes."""
        return self.demand_bytes_per_s <= self.capacity_bytes_per_s

    @property
    def utilization(self) -> float:
        """Share of the capacity."""
        return self.demand_bytes_per_s / self.capacity_bytes_per_s

    @property
    def leaves(self) -> bool:
        """Counts what is sent; what enters a node has left another one and is not sent twice."""
        return not self.link.startswith(_INTO)

    def __str__(self) -> str:
        verdict = "" if self.is_feasible else ", NOT feasible"
        return (
            f"{self.link}: {self.demand_bytes_per_s / 1e9:.4g} of "
            f"{self.capacity_bytes_per_s / 1e9:.4g} GB/s{verdict}"
        )


def payload_bytes_per_s(goodput_per_s: float, request_nbytes: float) -> float:
    """B_demand = g M_KV: what one path that carries every handoff must carry at least."""
    for name, value in (("goodput_per_s", goodput_per_s), ("request_nbytes", request_nbytes)):
        if not value >= 0:
            raise ConfigError(f"{name} = {value}: 0 or more")
    return goodput_per_s * request_nbytes


def whole_path(
    goodput_per_s: float, request_nbytes: float, capacity_bytes_per_s: float, link: str = "path"
) -> PathLoad:
    """One path for all handoffs."""
    return PathLoad(
        link=link,
        demand_bytes_per_s=payload_bytes_per_s(goodput_per_s, request_nbytes),
        capacity_bytes_per_s=capacity_bytes_per_s,
    )


def path_loads(
    packing: Packing,
    prefill: Instances,
    decode: Instances,
    cluster: Cluster,
    demand_bytes_per_s: float,
) -> list[PathLoad]:
    """Every link that carries K/V, when requests spread evenly over pairs of instances.

    Layers of prefill stage j go to the decode stages that hold the same layers.
    """
    inner = [0.0] * len(packing.nodes)
    egress, ingress = list(inner), list(inner)
    pair = demand_bytes_per_s / (prefill.num * decode.num)
    for first in prefill.names:
        for second in decode.names:
            for stage, other, share in overlaps(prefill.parallel.pp, decode.parallel.pp):
                source_node = packing.node_of(first, stage)
                target_node = packing.node_of(second, other)
                if source_node == target_node:
                    inner[source_node] += pair * share
                else:
                    egress[source_node] += pair * share
                    ingress[target_node] += pair * share
    kinds = (
        ("inside", inner, cluster.inner_bytes_per_s),
        ("out of", egress, cluster.node_bytes_per_s),
        (_INTO, ingress, cluster.node_bytes_per_s),
    )
    return [
        PathLoad(
            link=f"{kind} node {node}", demand_bytes_per_s=demand, capacity_bytes_per_s=capacity
        )
        for kind, demands, capacity in kinds
        for node, demand in enumerate(demands)
        if demand > 0
    ]


def overlaps(first: int, second: int) -> Iterator[tuple[int, int, float]]:
    """Stages of two pipelines over the same layers, and the share of all layers in both."""
    for stage in range(first):
        for other in range(second):
            low = max(stage * second, other * first)
            high = min((stage + 1) * second, (other + 1) * first)
            if high > low:
                yield stage, other, (high - low) / (first * second)
