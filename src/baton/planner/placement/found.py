"""What a placement search found: deployments with everything that they rest on."""

import msgspec

from baton.core.ids import Role
from baton.hardware.parallel import Parallel
from baton.planner.goodput.answer import GoodputAnswer
from baton.planner.placement.packing import Packing
from baton.planner.placement.paths import PathLoad
from baton.planner.placement.residency import Residency
from baton.sim.fast.deployment import Deployment

COLOCATED, HIGH_AFFINITY, LOW_AFFINITY = "colocated", "split, high affinity", "split, low affinity"


class ArmGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal instances."""

    role: Role
    parallel: Parallel
    num: int
    kv_tokens: int
    """Of one instance."""
    batch_policy: str
    max_batch_tokens: int
    max_num_seqs: int
    block_size: int

    @property
    def num_gpus(self) -> int:
        """Of all."""
        return self.num * self.parallel.gpus

    def __str__(self) -> str:
        policy = f" {self.batch_policy} {self.max_batch_tokens}" if self.role is Role.MIXED else ""
        return f"{self.num} x {self.role} {self.parallel}{policy}"


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment on the cluster, as `num_cells` equal and independent parts.

    `deployment` is one part; goodput, GPUs and residency are those of all.
    """

    kind: str
    groups: tuple[ArmGroup, ...]
    """Over all parts."""
    num_cells: int
    deployment: Deployment
    cell: GoodputAnswer
    """Of one part."""
    packing: Packing
    paths: tuple[PathLoad, ...]
    """K/V links at the goodput."""
    residency: Residency
    bound_per_s: float
    """What the search expected of it at most, before slack."""
    is_refined: bool = False
    """Simulated at full length; else only as long as its rank needed."""

    @property
    def goodput_per_s(self) -> float:
        """Of all parts."""
        return self.cell.rate.value * self.num_cells

    @property
    def answer(self) -> GoodputAnswer:
        """Of all parts together."""
        return msgspec.structs.replace(
            self.cell, rate=self.cell.rate.times(self.num_cells), num_gpus=self.num_gpus
        )

    @property
    def num_gpus(self) -> int:
        """Of all instances."""
        return sum(group.num_gpus for group in self.groups)

    @property
    def per_gpu(self) -> float:
        """Goodput over every GPU of it."""
        return self.goodput_per_s / self.num_gpus

    def __str__(self) -> str:
        return f"{self.kind}: " + " + ".join(map(str, self.groups))


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """What an optimum is optimal over."""

    num_configurations: int
    """Enumerated: cut, counts and policy."""
    num_unplaceable: int
    """Fit by number and have no place, or no path."""
    num_pruned: int
    """Whose bound was below the best one's goodput."""
    num_deployments: int
    """Simulated as a whole."""
    num_simulations: int
    gap: float
    """How much higher than the best one an unsimulated configuration may be, relative, by its
    bound with slack; 0: none may."""
    statement: str


class ArmSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The best deployments of one kind, best first; none when nothing meets the targets."""

    arms: tuple[Arm, ...]
    searched: Searched

    @property
    def best(self) -> Arm | None:
        """With the highest goodput that is not 0."""
        return self.arms[0] if self.arms and self.arms[0].goodput_per_s > 0 else None
