"""The operations between linear layers, in torch: the reference, and the path of every device."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from baton.engine.pool import Pool
from baton.engine.step import Step


@dataclass(frozen=True)
class AttentionSpec:
    """One layer's attention: `window` 0 and `softcap` 0 mean none; `sinks` is one logit a head."""

    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None


class TorchOps:
    """Torch implementations; `batched` groups decode rows, which a GPU needs and a CPU must not.

    On a CPU each decode row is computed by itself, so that its bits do not depend on its batch.
    """

    def __init__(self, batched: bool) -> None:
        self.batched = batched

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """`weight * x / rms(x)` by row."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return weight * wide.to(x.dtype)

    def add_rms_norm(self, delta: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Add `delta` to `x` in place and return the norm of the sum."""
        x += delta
        return self.rms_norm(x, weight, eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """`silu(gate) * up` of rows `[gate | up]`."""
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate) * up

    def rope_and_write(
        self, qkv: Tensor, norms: Tensor, eps: float, rope: Tensor, step: Step, pool: Pool,
        layer: int,
    ) -> None:  # fmt: skip
        """Norm (when `norms` has rows) and rotate q and k of `[q | k | v]` in place; write K/V."""
        kv_heads, dim = pool.layout.num_kv_heads, pool.layout.head_dim
        rows = qkv[: step.num_rows].view(step.num_rows, -1, dim)
        heads = rows.shape[1] - 2 * kv_heads
        if norms.shape[1]:
            rows[:, :heads] = self.rms_norm(rows[:, :heads], norms[0], eps)
            rows[:, heads:-kv_heads] = self.rms_norm(rows[:, heads:-kv_heads], norms[1], eps)
        positions = _cached(step, "positions", step.positions[: step.num_rows], rows.device)
        cos, sin = rope[positions].to(rows.dtype).unsqueeze(1).chunk(2, dim=-1)
        low, high = rows[:, :-kv_heads].chunk(2, dim=-1)
        rotated = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
        rows[:, :-kv_heads] = rotated
        self.write_kv(rows[:, heads:-kv_heads], rows[:, -kv_heads:], step, pool, layer)

    def write_kv(self, key: Tensor, value: Tensor, step: Step, pool: Pool, layer: int) -> None:
        """Write `key`, `value` [row][kv head][dim] of the step's rows into the pool."""
        blocks = _cached(step, "blocks", step.blocks, key.device)
        slots = _cached(step, "slots", step.slots, key.device)
        pool.layers[layer][blocks, 0, :, slots] = key
        pool.layers[layer][blocks, 1, :, slots] = value

    def gather(
        self, pool: Pool, layer: int, table: NDArray[np.int32], first: int, last: int, span: int
    ) -> tuple[Tensor, Tensor]:
        """K and V of positions `first .. last` as `[kv head][span][dim]`, zero behind them."""
        size = pool.layout.block_size
        low, high = first // size, -(-last // size)
        index = torch.from_numpy(table[low:high].astype(np.int64)).to(pool.tensor.device)
        rows = pool.layers[layer].index_select(0, index).permute(1, 2, 0, 3, 4).flatten(2, 3)
        rows = rows[:, :, first - low * size : last - low * size]
        padded = functional.pad(rows, (0, 0, 0, span - (last - first)))
        return padded[0].contiguous(), padded[1].contiguous()

    def decode(
        self, q: Tensor, step: Step, pool: Pool, layer: int, spec: AttentionSpec, out: Tensor
    ) -> None:
        """Attention of the step's decode rows over their own positions, from `q` into `out`."""
        count = len(step.decode_rows)
        if self.batched:
            self._decode_group(slice(0, count), q, step, pool, layer, spec, out)
            return
        for j in range(count):
            self._decode_group(slice(j, j + 1), q, step, pool, layer, spec, out)

    def _decode_group(
        self, group: slice, q: Tensor, step: Step, pool: Pool, layer: int, spec: AttentionSpec,
        out: Tensor,
    ) -> None:  # fmt: skip
        size, dim, kv_heads = pool.layout.block_size, pool.layout.head_dim, pool.layout.num_kv_heads
        index, visible = self._visible(group, step, size, spec.window, q.device)
        blocks = pool.layers[layer][index]
        keys, values = blocks.permute(2, 0, 3, 1, 4, 5).flatten(3, 4)
        # Slots behind a row may hold anything, NaN included: zero them, a mask is not enough.
        keys = keys.masked_fill(~visible[:, None, :, None], 0)
        values = values.masked_fill(~visible[:, None, :, None], 0)
        rows = torch.from_numpy(step.decode_rows[group]).to(q.device)
        query = q[rows, : out.shape[1]].view(len(rows), kv_heads, -1, dim)
        result = attend(query, keys, values, visible[:, None, None, :], spec)
        out[rows] = result.reshape(len(rows), -1)

    def _visible(
        self, group: slice, step: Step, size: int, window: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        name = f"visible-{group.start}-{window}"
        if name not in step.cache:
            positions = step.decode_positions[group]
            width = int(positions.max()) // size + 1
            columns = np.arange(width)[None] + step.table_starts[group][:, None]
            # Short rows read past their own table; the mask hides whatever block that names.
            tables = step.tables[np.minimum(columns, len(step.tables) - 1)].astype(np.int64)
            key = np.arange(width * size)[None]
            mask = key <= positions[:, None]
            if window:
                mask &= key > positions[:, None] - window
            step.cache[name + "-table"] = torch.from_numpy(tables).to(device)
            step.cache[name] = torch.from_numpy(mask).to(device)
        return step.cache[name + "-table"], step.cache[name]


def attend(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, spec: AttentionSpec
) -> Tensor:
    """Explicit attention, `query` [..., q, dim] over `keys` [..., k, dim]; `mask` True is visible.

    `spec.sinks` needs queries shaped [batch, kv head, q head of it, dim].
    """
    scores = (query @ keys.transpose(-1, -2)).float() * spec.scale
    if spec.softcap:
        scores = torch.tanh(scores / spec.softcap) * spec.softcap
    scores = scores.masked_fill(~mask, float("-inf"))
    if spec.sinks is not None:
        sinks = spec.sinks.float().view(1, scores.shape[1], -1, 1)
        repeat = scores.shape[2] // sinks.shape[2]
        sinks = sinks.repeat_interleave(repeat, dim=2).expand(*scores.shape[:3], 1)
        weights = torch.softmax(torch.cat((scores, sinks), dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    return weights.to(values.dtype) @ values


def _cached(step: Step, name: str, array: NDArray[np.generic], device: torch.device) -> Tensor:
    if name not in step.cache:
        step.cache[name] = torch.from_numpy(array.astype(np.int64)).to(device)
    return step.cache[name]
