"""The machines that a placement has, and what their links carry."""

import msgspec

from baton.errors import ConfigError
from baton.hardware.system import System

US_PER_S = 1e6


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Equal nodes. Bytes a second of payload, one way."""

    num_nodes: int
    gpus_per_node: int
    inner_bytes_per_s: float
    """Of one node, between its GPUs, all flows together."""
    node_bytes_per_s: float
    """Into and out of one node, each."""

    def __post_init__(self) -> None:
        for name in ("num_nodes", "gpus_per_node"):
            if getattr(self, name) < 1:
                raise ConfigError(f"cluster.{name} is {getattr(self, name)}; at least 1")
        for name in ("inner_bytes_per_s", "node_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"cluster.{name} is {getattr(self, name)}; above 0")

    @property
    def num_gpus(self) -> int:
        """Of all nodes."""
        return self.num_nodes * self.gpus_per_node

    def __str__(self) -> str:
        return f"{self.num_nodes} nodes of {self.gpus_per_node} GPUs"


def cluster_of(system: System, num_gpus: int) -> Cluster:
    """So many GPUs in the fewest nodes; a part of a node is a smaller node.

    Links of a data sheet are those of one GPU. A transfer between two instances on a node is
    counted against one GPU's link, however many ranks move it: that errs on the slow side.
    """
    if num_gpus < 1:
        raise ConfigError(f"num_gpus is {num_gpus}; at least 1")
    per_node = min(system.domain_gpus, num_gpus)
    if num_gpus % per_node:
        raise ConfigError(
            f"{num_gpus} GPUs are not whole nodes of {per_node} {system.name}; use a multiple"
        )
    return Cluster(
        num_nodes=num_gpus // per_node,
        gpus_per_node=per_node,
        inner_bytes_per_s=system.intra_bytes_per_s,
        node_bytes_per_s=system.inter_bytes_per_s * per_node,
    )
