"""How many tokens of K/V one instance holds, and which instances fit at all."""

from collections.abc import Iterator

import msgspec

from baton.errors import ConfigError
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.shards import shard_of
from baton.hardware.system import System

_GIB = 2**30


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one GPU, in bytes, by what it is for."""

    capacity_nbytes: float
    usable_nbytes: float
    weight_nbytes: float
    activation_nbytes: float
    reserved_nbytes: float
    sequence_nbytes: float
    """Windows and recurrent states of as many sequences as may run."""
    token_nbytes: float

    @property
    def kv_nbytes(self) -> float:
        """What is left; below 0 if the model does not fit."""
        held = self.weight_nbytes + self.activation_nbytes + self.reserved_nbytes
        return self.usable_nbytes - held - self.sequence_nbytes

    @property
    def kv_tokens(self) -> int:
        """Below 1 if the model does not fit."""
        return int(self.kv_nbytes // self.token_nbytes) if self.kv_nbytes > 0 else 0


def room(
    model: ModelShape,
    system: System,
    parallel: Parallel,
    utilization: float = 0.9,
    *,
    max_batch_tokens: int = 2048,
    num_sequences: int = 64,
) -> Room:
    """The ledger behind `kv_tokens`. Raises ConfigError for a share that means nothing."""
    check_utilization(utilization)
    shard = shard_of(model, parallel)
    return Room(
        capacity_nbytes=system.memory_nbytes,
        usable_nbytes=system.memory_nbytes * utilization,
        weight_nbytes=shard.weight_nbytes,
        activation_nbytes=activation_nbytes(model, parallel, max_batch_tokens),
        reserved_nbytes=reserved_nbytes(system),
        sequence_nbytes=num_sequences * shard.sequence_nbytes,
        token_nbytes=max(1.0, shard.token_nbytes),
    )


def check_utilization(share: float) -> None:
    """Raises ConfigError for a share that means nothing."""
    if not 0 < share <= 1:
        raise ConfigError(
            f"--utilization {share:g}: the share of a GPU's memory that may be used, above 0 and "
            "at most 1, such as 0.9"
        )


def kv_tokens(
    model: ModelShape, system: System, parallel: Parallel, utilization: float = 0.9
) -> int:
    """Of one instance. Raises ConfigError with the least TP and PP that fit, if it does not."""
    found = room(model, system, parallel, utilization)
    if found.kv_tokens < 1:
        raise ConfigError(_refusal(model, system, parallel, utilization, found))
    return found.kv_tokens


def activation_nbytes(model: ModelShape, parallel: Parallel, max_batch_tokens: int) -> float:
    """The largest moment of a forward pass of so many rows, in 16 bits.

    Residual, its norm and their sum over all; projections of attention and one feed-forward's two
    halves over the tensor-parallel share.
    """
    qkv = model.query_dim + model.output_dim + 2 * model.num_kv_heads * model.head_dim
    per_token = model.experts_per_token + model.num_shared_experts
    widest = max(model.ffn_dim, model.expert_dim * per_token)
    divided = (qkv + (2 if model.is_gated else 1) * widest) / parallel.tp
    return 2.0 * max_batch_tokens * (3 * model.model_dim + divided)


def reserved_nbytes(system: System) -> float:
    """Context and libraries: as the system says, at most a tenth of a small device's memory."""
    return min(float(system.reserved_nbytes), 0.1 * system.memory_nbytes)


def fitting(
    model: ModelShape, system: System, utilization: float = 0.9, max_gpus: int = 64
) -> Iterator[Parallel]:
    """Cuts that hold the model, of fewest GPUs first; among equals the wider TP first."""
    cuts = [
        Parallel(tp=tp, pp=pp)
        for tp in range(1, min(system.domain_gpus, max_gpus) + 1)
        if model.num_heads % tp == 0
        for pp in range(1, min(model.num_layers, max_gpus // tp) + 1)
    ]
    for cut in sorted(cuts, key=lambda one: (one.gpus, one.pp)):
        if room(model, system, cut, utilization).kv_tokens >= 1:
            yield cut


def _refusal(
    model: ModelShape, system: System, parallel: Parallel, utilization: float, found: Room
) -> str:
    least = next(fitting(model, system, utilization, 256), None)
    held = found.usable_nbytes - found.kv_nbytes
    remedy = f"the least that fits is {least}" if least else "no cut up to 256 GPUs fits"
    return (
        f"{model.name} does not fit {system.name} with {parallel}: each GPU would hold "
        f"{held / _GIB:.1f} GiB before any K/V, and may use {found.usable_nbytes / _GIB:.1f} GiB "
        f"({utilization:g} of its memory); {remedy}"
    )
