"""One way to use the GPUs: pools of equal instances, and where each stage of each one stands."""

from collections.abc import Sequence

import msgspec

from baton.core.ids import Role
from baton.errors import ConfigError
from baton.hardware.parallel import Parallel


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Equal workers of one role."""

    role: Role
    num_workers: int
    parallel: Parallel
    kv_tokens: int
    """Of one worker."""
    batch_policy: str = "sarathi_serve"
    max_batch_tokens: int = 2048
    max_num_seqs: int = 256
    block_size: int = 16

    @property
    def num_gpus(self) -> int:
        """All workers together."""
        return self.num_workers * self.parallel.gpus

    @property
    def text(self) -> str:
        """Such as 2x prefill TP4."""
        stages = f" PP{self.parallel.pp}" if self.parallel.pp > 1 else ""
        return f"{self.num_workers}x {self.role} TP{self.parallel.tp}{stages}"


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline stage of one worker: GPUs of one node."""

    pool: int
    worker: int
    """Within its pool."""
    stage: int
    node: int
    gpus: tuple[int, ...]


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that can be deployed."""

    pools: tuple[Pool, ...]
    stages: tuple[Stage, ...]
    route: str = "shortest_queue"

    def __post_init__(self) -> None:
        roles = [pool.role for pool in self.pools]
        if roles not in ([Role.MIXED], [Role.PREFILL, Role.DECODE]):
            raise ConfigError(
                f"pools {[str(role) for role in roles]}: one of mixed workers, or prefill "
                "and decode in this order"
            )

    @property
    def is_split(self) -> bool:
        """Prefill and decode on different workers."""
        return len(self.pools) == 2

    @property
    def name(self) -> str:
        """One word."""
        return "split" if self.is_split else "colocated"

    @property
    def num_gpus(self) -> int:
        """Every one of them, idle or not."""
        return sum(pool.num_gpus for pool in self.pools)

    @property
    def text(self) -> str:
        """Pools in words."""
        return " + ".join(pool.text for pool in self.pools)

    def stages_of(self, pool: int, worker: int) -> tuple[Stage, ...]:
        """Of one worker, in order."""
        mine = [one for one in self.stages if (one.pool, one.worker) == (pool, worker)]
        return tuple(sorted(mine, key=lambda one: one.stage))


def pack_stages(pools: Sequence[Pool], gpus_per_node: int) -> tuple[Stage, ...]:
    """Workers one after another over nodes; a stage never leaves its node.

    Larger stages go first, each to the first node with room, as many stages of a worker on one
    node as fit.
    """
    free: list[list[int]] = []
    placed = []
    order = sorted(range(len(pools)), key=lambda at: -pools[at].parallel.tp)
    for at in order:
        width = pools[at].parallel.tp
        if width > gpus_per_node:
            raise ConfigError(
                f"TP {width} needs a node with {width} GPUs; these have {gpus_per_node}"
            )
        for worker in range(pools[at].num_workers):
            for stage in range(pools[at].parallel.pp):
                node = next((n for n, gpus in enumerate(free) if len(gpus) >= width), len(free))
                if node == len(free):
                    free.append(list(range(gpus_per_node)))
                taken, free[node] = tuple(free[node][:width]), free[node][width:]
                placed.append(Stage(pool=at, worker=worker, stage=stage, node=node, gpus=taken))
    return tuple(placed)
