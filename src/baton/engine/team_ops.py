"""The numba operations with their rows shared among threads: the same code over fewer rows."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine import decode_kernel, kernels
from baton.engine.numba_ops import NumbaOps
from baton.engine.ops import AttentionSpec
from baton.engine.pool import Pool
from baton.engine.step import Step
from baton.engine.team import Span, Team, even_spans, weighted_spans

LEAST_ELEMENTS = 1 << 16
"""Fewer elements (about a nanosecond each) stay on one thread: waking another costs as much."""
LEAST_VISIBLE_NBYTES = 1 << 20
"""Less visible K/V than this is one thread's work too; it is read at some 10 GB/s."""


class TeamOps(NumbaOps):
    """NumbaOps on several threads. A row is computed whole by one thread, so its bits stay.

    Copies into the grid (`gather`) stay on one thread: they are less than 1 % of a prefill.
    """

    def __init__(self, num_threads: int) -> None:
        super().__init__()
        self._team = Team(num_threads)
        self._step: Step | None = None
        self._decode_spans: dict[int, list[Span]] = {}

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See TorchOps."""
        out = torch.empty_like(x)
        rows, scale, e, to = x.numpy(), weight.numpy(), np.float32(eps), out.numpy()
        self._team.run(
            self._spans(to),
            lambda i, j: kernels.rms_norm(rows[i:j], scale, e, to[i:j]),
        )
        return out

    def add_rms_norm(self, delta: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See TorchOps."""
        out = torch.empty_like(x)
        change, rows, scale = delta.numpy(), x.numpy(), weight.numpy()
        e, to = np.float32(eps), out.numpy()
        self._team.run(
            self._spans(to),
            lambda i, j: kernels.add_rms_norm(change[i:j], rows[i:j], scale, e, to[i:j]),
        )
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """See TorchOps."""
        out = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2)
        rows, to = gate_up.numpy(), out.numpy()
        self._team.run(self._spans(to), lambda i, j: kernels.silu_mul(rows[i:j], to[i:j]))
        return out

    def rope_and_write(
        self, qkv: Tensor, norms: Tensor, eps: float, rope: Tensor, step: Step, pool: Pool,
        layer: int,
    ) -> None:  # fmt: skip
        """See TorchOps."""
        rows, weights, e, angles = qkv.numpy(), norms.numpy(), np.float32(eps), rope.numpy()
        into = pool.arrays[layer]
        self._team.run(
            self._spans(rows[: step.num_rows]),
            lambda i, j: kernels.rope_and_write(
                rows[i:j], weights, e, angles, step.positions[i:j], step.blocks[i:j],
                step.slots[i:j], into,
            ),
        )  # fmt: skip

    def write_kv(self, key: Tensor, value: Tensor, step: Step, pool: Pool, layer: int) -> None:
        """See TorchOps."""
        keys, values = key.contiguous().numpy(), value.contiguous().numpy()
        into = pool.arrays[layer]
        self._team.run(
            self._spans(keys),
            lambda i, j: kernels.write_kv(
                keys[i:j], values[i:j], step.blocks[i:j], step.slots[i:j], into
            ),
        )

    def decode(
        self, q: Tensor, step: Step, pool: Pool, layer: int, spec: AttentionSpec, out: Tensor
    ) -> None:
        """See TorchOps."""
        if spec.sinks is not None:
            super().decode(q, step, pool, layer, spec, out)
            return
        queries, to, blocks = q.numpy(), out.numpy(), pool.arrays[layer]
        scale, softcap = np.float32(spec.scale), np.float32(spec.softcap)
        self._team.run(
            self._visible_spans(step, pool, spec.window),
            lambda i, j: decode_kernel.paged_decode(
                queries, step.decode_rows[i:j], step.decode_positions[i:j], step.tables,
                step.table_starts[i:j], blocks, spec.window, scale, softcap, to,
            ),
        )  # fmt: skip

    def _spans(self, array: NDArray[np.float32]) -> list[Span]:
        parts = self._team.num_threads if array.size >= LEAST_ELEMENTS else 1
        return even_spans(len(array), parts) or [(0, 0)]

    def _visible_spans(self, step: Step, pool: Pool, window: int) -> list[Span]:
        """Decode rows by the number of keys each sees; every layer of a step asks the same."""
        if self._step is not step:
            self._step, self._decode_spans = step, {}
        if window not in self._decode_spans:
            visible = step.decode_positions + 1
            if window:
                visible = np.minimum(visible, window)
            nbytes = int(visible.sum()) * pool.layout.row_nbytes
            parts = self._team.num_threads if nbytes >= LEAST_VISIBLE_NBYTES else 1
            self._decode_spans[window] = weighted_spans(visible, parts)
        return self._decode_spans[window]
