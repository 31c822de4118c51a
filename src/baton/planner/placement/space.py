"""Which instances of a model a cluster can hold, and what every one of them costs to run."""

from collections.abc import Sequence

import msgspec

from baton.core.ids import Schedule
from baton.errors import ConfigError
from baton.hardware.curves import StepCurves
from baton.hardware.instance import instance_of
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import MissingCell, Predictor
from baton.hardware.system import System
from baton.planner.placement.cluster import Cluster
from baton.sim.fast.deployment import Delays


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One instance: its cut, its step times, its memory."""

    parallel: Parallel
    curves: StepCurves
    kv_tokens: int
    step_overhead_us: float = 0.0
    sequence_overhead_us: float = 0.0

    @property
    def gpus(self) -> int:
        """Of one instance."""
        return self.parallel.gpus


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """How every instance is run, whatever its cut."""

    block_size: int = 16
    max_num_seqs: int = 256
    prefill_batches: tuple[int, ...] = (2048, 8192)
    """Tokens of a step of a prefill instance, to choose from; a longer prompt runs alone."""
    prefill_policy: str = "prefill_first"
    keeps_prefixes: bool = True
    schedule: Schedule = Schedule.LAYER
    delays: Delays = Delays()
    route: str = "shortest_queue"
    latency_us: float = 10.0
    """Of one transfer."""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A cut that was not searched, and why."""

    parallel: Parallel
    why: str


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """All that a search may choose from."""

    candidates: tuple[Candidate, ...]
    skipped: tuple[Skipped, ...]
    cluster: Cluster
    serving: Serving
    token_nbytes: int
    """K/V of one token, all layers."""
    num_layers: int
    copy_nbytes: int
    """Weights of one complete copy of the model."""

    def candidate(self, parallel: Parallel) -> Candidate:
        """The one with this cut."""
        for one in self.candidates:
            if one.parallel == parallel:
                return one
        raise ConfigError(f"{parallel} is not among the candidates")


def find_space(
    model: ModelShape,
    system: System,
    predictor: Predictor,
    cluster: Cluster,
    *,
    serving: Serving | None = None,
    parallels: Sequence[Parallel] | None = None,
    utilization: float = 0.9,
) -> Space:
    """Every cut that fits and that the predictor knows; the others with their reasons.

    Without `parallels`: tensor parallelism inside a node that divides the heads, pipelines of equal
    stages, up to all GPUs.
    """
    found, skipped = [], []
    for parallel in parallels if parallels is not None else all_cuts(model, cluster):
        try:
            one = instance_of(predictor, model, system, parallel, utilization=utilization)
        except (MissingCell, ConfigError) as problem:
            skipped.append(Skipped(parallel=parallel, why=str(problem)))
            continue
        found.append(
            Candidate(
                parallel=parallel,
                curves=one.curves,
                kv_tokens=one.kv_tokens,
                step_overhead_us=one.step_overhead_us,
                sequence_overhead_us=one.sequence_overhead_us,
            )
        )
    if not found:
        raise ConfigError(
            f"{model.name} has no instance on {cluster} of {system.name}: "
            + (skipped[-1].why if skipped else "no cut was tried")
        )
    return Space(
        candidates=tuple(found),
        skipped=tuple(skipped),
        cluster=cluster,
        serving=serving or Serving(),
        token_nbytes=round(model.token_nbytes),
        num_layers=model.num_layers,
        copy_nbytes=round(model.weight_nbytes),
    )


def all_cuts(model: ModelShape, cluster: Cluster) -> list[Parallel]:
    """Fewest GPUs first, among equals the wider TP first."""
    cuts = [
        Parallel(tp=tp, pp=pp)
        for tp in range(1, cluster.gpus_per_node + 1)
        if model.num_heads % tp == 0
        for pp in range(1, min(cluster.num_gpus // tp, model.num_layers) + 1)
        if model.num_layers % pp == 0
    ]
    return sorted(cuts, key=lambda one: (one.gpus, one.pp))
