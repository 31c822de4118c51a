"""The operations between linear layers, in numba kernels: float32 on a CPU."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine import decode_kernel, kernels
from baton.engine.ops import AttentionSpec, TorchOps
from baton.engine.pool import Pool
from baton.engine.step import Step


class NumbaOps(TorchOps):
    """Numba kernels where there is one, torch for the rest (attention with sinks)."""

    def __init__(self) -> None:
        super().__init__(batched=False)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See TorchOps."""
        out = torch.empty_like(x)
        kernels.rms_norm(x.numpy(), weight.numpy(), np.float32(eps), out.numpy())
        return out

    def add_rms_norm(self, delta: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See TorchOps."""
        out = torch.empty_like(x)
        kernels.add_rms_norm(delta.numpy(), x.numpy(), weight.numpy(), np.float32(eps), out.numpy())
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """See TorchOps."""
        out = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2)
        kernels.silu_mul(gate_up.numpy(), out.numpy())
        return out

    def rope_and_write(
        self, qkv: Tensor, norms: Tensor, eps: float, rope: Tensor, step: Step, pool: Pool,
        layer: int,
    ) -> None:  # fmt: skip
        """See TorchOps."""
        kernels.rope_and_write(
            qkv.numpy(), norms.numpy(), np.float32(eps), rope.numpy(), step.positions,
            step.blocks, step.slots, pool.arrays[layer],
        )  # fmt: skip

    def write_kv(self, key: Tensor, value: Tensor, step: Step, pool: Pool, layer: int) -> None:
        """See TorchOps."""
        kernels.write_kv(
            key.contiguous().numpy(), value.contiguous().numpy(), step.blocks, step.slots,
            pool.arrays[layer],
        )  # fmt: skip

    def gather(
        self, pool: Pool, layer: int, table: NDArray[np.int32], first: int, last: int, span: int
    ) -> tuple[Tensor, Tensor]:
        """See TorchOps."""
        shape = (pool.layout.num_kv_heads, span, pool.layout.head_dim)
        keys, values = torch.empty(shape), torch.empty(shape)
        kernels.gather_kv(pool.arrays[layer], table, first, last, keys.numpy(), values.numpy())
        return keys, values

    def decode(
        self, q: Tensor, step: Step, pool: Pool, layer: int, spec: AttentionSpec, out: Tensor
    ) -> None:
        """See TorchOps."""
        if spec.sinks is not None:
            super().decode(q, step, pool, layer, spec, out)
            return
        decode_kernel.paged_decode(
            q.numpy(), step.decode_rows, step.decode_positions, step.tables, step.table_starts,
            pool.arrays[layer], spec.window, np.float32(spec.scale), np.float32(spec.softcap),
            out.numpy(),
        )  # fmt: skip
