"""The numba operations that pay on several threads: the same code over fewer rows each."""

import numpy as np
from torch import Tensor

from baton.engine import decode_kernel, kernels
from baton.engine.numba_ops import NumbaOps
from baton.engine.ops import AttentionSpec
from baton.engine.pool import Pool
from baton.engine.step import Step
from baton.engine.team import Span, Team, even_spans, weighted_spans

LEAST_ELEMENTS = 1 << 17
"""Fewer elements (about a nanosecond each) stay on one thread: waking another costs as much."""
LEAST_VISIBLE_NBYTES = 1 << 20
"""Less visible K/V than this is one thread's work too; it is read at some 10 GB/s."""


class TeamOps(NumbaOps):
    """NumbaOps on several threads. A row is computed whole by one thread, so its bits stay.

    Norms, SiLU and copies stay on one thread: they do little per byte, and the bytes would first
    have to cross from the other core's cache. Measured at 128 and 512 rows, sharing gains nothing.
    """

    def __init__(self, num_threads: int) -> None:
        super().__init__()
        self._team = Team(num_threads)
        self._step: Step | None = None
        self._decode_spans: dict[int, list[Span]] = {}

    def rope_and_write(
        self, qkv: Tensor, norms: Tensor, eps: float, rope: Tensor, step: Step, pool: Pool,
        layer: int,
    ) -> None:  # fmt: skip
        """See TorchOps."""
        if step.num_rows * qkv.shape[1] < LEAST_ELEMENTS:
            super().rope_and_write(qkv, norms, eps, rope, step, pool, layer)
            return
        rows, weights, e, angles = qkv.numpy(), norms.numpy(), np.float32(eps), rope.numpy()
        into = pool.arrays[layer]
        self._team.run(
            even_spans(step.num_rows, self._team.num_threads),
            lambda i, j: kernels.rope_and_write(
                rows[i:j], weights, e, angles, step.positions[i:j], step.blocks[i:j],
                step.slots[i:j], into,
            ),
        )  # fmt: skip

    def decode(
        self, q: Tensor, step: Step, pool: Pool, layer: int, spec: AttentionSpec, out: Tensor
    ) -> None:
        """See TorchOps."""
        spans = self._visible_spans(step, pool, spec.window)
        if spec.sinks is not None or len(spans) == 1:
            super().decode(q, step, pool, layer, spec, out)
            return
        queries, to, blocks = q.numpy(), out.numpy(), pool.arrays[layer]
        scale, softcap = np.float32(spec.scale), np.float32(spec.softcap)
        self._team.run(
            spans,
            lambda i, j: decode_kernel.paged_decode(
                queries, step.decode_rows[i:j], step.decode_positions[i:j], step.tables,
                step.table_starts[i:j], blocks, spec.window, scale, softcap, to,
            ),
        )  # fmt: skip

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
