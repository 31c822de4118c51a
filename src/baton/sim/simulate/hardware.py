"""Named machines as arithmetic: a step's time from FLOPs and bytes, where nothing was measured."""

from collections.abc import Sequence

import msgspec

from baton.core.layout import KVLayout, ModelIdentity
from baton.errors import ConfigError
from baton.policy.phase_cost import BlockShape, PrefillRows
from baton.policy.service_profile import (
    BatchCoordinates,
    Contention,
    Hardware,
    Kernels,
    StepOverhead,
    Subject,
    TransferCost,
)

GIGA = 1e9
US_PER_S = 1e6


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One model on one node, as the published estimate counts it.

    flops(n) = L (a n^2 d + b n d^2), and of a prompt whose first p tokens are cached, the part
    from p to n. A step takes its FLOPs over the achieved rate, or the time to read the weights
    and the visible K/V, whichever is longer.
    """

    name: str
    num_layers: int
    model_dim: int
    num_kv_heads: int
    head_dim: int
    pair_factor: float = 4.0
    """a: attention, FLOPs per token squared and model width."""
    row_factor: float = 22.0
    """b: everything linear, FLOPs per token and model width squared."""
    weight_nbytes: int
    peak_tflops: float
    mfu: float = 0.5
    """Share of the peak that prefill achieves."""
    memory_gbytes_per_s: float
    link_gbytes_per_s: float
    """Of one node to the others, in GB/s."""
    layer_group: int = 10
    """Layers that a simulated one stands for: they are reported, and may move, together."""

    def __post_init__(self) -> None:
        if self.num_layers % self.layer_group:
            raise ConfigError(
                f"layer_group {self.layer_group} does not divide {self.num_layers} layers"
            )
        if not 0 < self.mfu <= 1:
            raise ConfigError(f"--mfu {self.mfu:g}: a share above 0 and at most 1")
        if not 0 < self.link_gbytes_per_s < float("inf"):
            raise ConfigError(
                f"--bandwidth {self.link_gbytes_per_s:g}: GB/s, a finite number above 0"
            )

    @property
    def token_nbytes(self) -> int:
        """K/V of one token over all layers, 16 bits a number."""
        return self.num_layers * self.num_kv_heads * self.head_dim * 4

    def flops(self, num_tokens: float, num_cached: float = 0.0) -> float:
        """Of a prompt's tokens beyond the cached ones."""
        squares = num_tokens**2 - num_cached**2
        rows = num_tokens - num_cached
        d = self.model_dim
        return self.num_layers * (self.pair_factor * squares * d + self.row_factor * rows * d * d)

    def break_even_gbytes_per_s(self, num_tokens: int) -> float:
        """The link at which fetching a prefix takes as long as computing it at the peak rate."""
        seconds = self.flops(num_tokens) / (self.peak_tflops * 1e12)
        return num_tokens * self.token_nbytes / seconds / GIGA


MACHINES: dict[str, Machine] = {
    machine.name: machine
    for machine in (
        Machine(
            name="a100x8-llama70b",
            num_layers=80,
            model_dim=8192,
            num_kv_heads=8,
            head_dim=128,
            weight_nbytes=140 * 10**9,
            peak_tflops=8 * 312.0,
            memory_gbytes_per_s=8 * 2039.0,
            link_gbytes_per_s=100.0,
        ),
        Machine(
            name="h800x8-llama70b",
            num_layers=80,
            model_dim=8192,
            num_kv_heads=8,
            head_dim=128,
            weight_nbytes=140 * 10**9,
            peak_tflops=8 * 989.0,
            memory_gbytes_per_s=8 * 3350.0,
            link_gbytes_per_s=200.0,
        ),
    )
}


def machine(
    name: str, *, mfu: float | None = None, link_gbytes_per_s: float | None = None
) -> Machine:
    """A named machine, with another efficiency or another link where they are given."""
    if name not in MACHINES:
        raise ConfigError(f"--hardware {name!r}: not known; use one of {', '.join(MACHINES)}")
    changed = {"mfu": mfu, "link_gbytes_per_s": link_gbytes_per_s}
    return msgspec.structs.replace(
        MACHINES[name], **{key: value for key, value in changed.items() if value is not None}
    )


class MachineCosts:
    """A machine as a replay asks for it: no overheads and no contention, its own bounds alone."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.subject = _subject(machine)
        self.transfer = TransferCost(
            bytes_per_us=machine.link_gbytes_per_s * GIGA / US_PER_S,
            operation_us=0.0,
            digest_bytes_per_us=0.0,
            checksum=False,
        )
        self.overhead = StepOverhead(step_us=0.0, sequence_us=0.0)
        self.contention = Contention(
            prefill_beside_decode=1.0, decode_beside_prefill=1.0, is_measured=False
        )
        self._flops_per_us = machine.peak_tflops * 1e12 * machine.mfu / US_PER_S
        self._nbytes_per_us = machine.memory_gbytes_per_s * GIGA / US_PER_S

    def step_us(self, prefills: Sequence[PrefillRows], visible_lengths: Sequence[int]) -> float:
        """The longer of compute and memory; a step without rows takes no time."""
        flops, num_visible = 0.0, sum(visible_lengths)
        for chunk in prefills:
            end = chunk.num_visible + chunk.num_rows
            flops += self.machine.flops(end, chunk.num_visible)
            num_visible += end
        for visible in visible_lengths:
            flops += self.machine.flops(visible, visible - 1)
        if not flops:
            return 0.0
        nbytes = self.machine.weight_nbytes + num_visible * self.machine.token_nbytes
        return max(flops / self._flops_per_us, nbytes / self._nbytes_per_us)


def _subject(machine: Machine) -> Subject:
    """Layers in groups: bytes are the model's own, only fewer events say that they are ready."""
    group = machine.layer_group
    layout = KVLayout(
        num_layers=machine.num_layers // group,
        num_kv_heads=machine.num_kv_heads,
        head_dim=machine.head_dim * group,
        block_size=1,
        dtype_k="bfloat16",
        dtype_v="bfloat16",
    )
    return Subject(
        identity=ModelIdentity(model=machine.name, checkpoint_hash="none", tokenizer_hash="none"),
        dtype="bfloat16",
        shape=BlockShape(
            layout=layout,
            model_dim=machine.model_dim,
            ffn_dim=1,
            num_query_heads=machine.num_kv_heads,
        ),
        weight_nbytes=machine.weight_nbytes,
        hardware=Hardware(cpu_model=machine.name, num_cores=1, read_bytes_per_us=0.0),
        kernels=Kernels(torch_version="", numba_version="", deterministic=True, report="analytic"),
        batch=BatchCoordinates(batch_policy="", max_batch_tokens=0, max_num_seqs=0),
    )
