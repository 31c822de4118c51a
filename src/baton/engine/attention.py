"""Attention of one layer over the paged pool: prefill rows on an absolute grid, decode rows."""

import torch
from torch import Tensor
from torch.nn import functional

from baton.engine.ops import AttentionSpec, TorchOps, attend
from baton.engine.pool import Pool
from baton.engine.step import GRID, Segment, Step


class Attention:
    """Computes a step's attention, one layer at a time.

    With `canonical`, prefill queries are always taken as rows `[64 j, 64 j + 64)` of their
    sequence against keys up to `64 j + 64`, zero-padded where a chunk ends inside: the shapes of
    every call, and so the bits of every row, depend on its absolute position alone. Without it a
    chunk is one call.
    """

    def __init__(self, ops: TorchOps, canonical: bool) -> None:
        self.ops = ops
        self.canonical = canonical
        self._bands: dict[tuple[int, int, int], Tensor] = {}

    def run(
        self, q: Tensor, width: int, step: Step, pool: Pool, layer: int, spec: AttentionSpec
    ) -> Tensor:
        """Output `[num_padded][width]`, width = q heads * dim, for `q` with that in its columns.

        `q` may be wider than its `width` first columns, which are the queries.
        """
        if step.num_padded == step.num_rows:
            out = q.new_empty(q.shape[0], width)
        else:
            out = q.new_zeros(q.shape[0], width)
        for segment in step.segments:
            self._prefill(q, out, segment, pool, layer, spec)
        if len(step.decode_rows):
            self.ops.decode(q, step, pool, layer, spec, out)
        return out

    def _prefill(
        self, q: Tensor, out: Tensor, segment: Segment, pool: Pool, layer: int, spec: AttentionSpec
    ) -> None:
        start, end = segment.start, segment.end
        if self.canonical:
            low, high = start // GRID * GRID, -(-end // GRID) * GRID
            first = _first_key(low, spec.window)
        else:
            low, high = start, end
            first = max(0, low - spec.window + 1) if spec.window else 0
        keys, values = self.ops.gather(pool, layer, segment.table, first, end, high - first)
        width = GRID if self.canonical else end - start
        for begin in range(low, high, width):
            key_begin = _first_key(begin, spec.window) if self.canonical else first
            rows = slice(max(begin, start), min(begin + width, end))
            here = slice(segment.row + rows.start - start, segment.row + rows.stop - start)
            query = q[here, : out.shape[1]]
            if rows.stop - rows.start < width:
                query = functional.pad(query, (0, 0, rows.start - begin, begin + width - rows.stop))
            span = slice(key_begin - first, begin + width - first)
            result = self._block(query, keys[:, span], values[:, span], begin - key_begin, spec)
            out[here] = result[rows.start - begin : rows.stop - begin]

    def _block(
        self, query: Tensor, keys: Tensor, values: Tensor, offset: int, spec: AttentionSpec
    ) -> Tensor:
        """`query` [w][q heads * dim] over `keys` [kv head][offset + w][dim], causal from offset."""
        kv_heads, _, dim = keys.shape
        width = query.shape[0]
        group = query.shape[1] // kv_heads // dim
        # The q heads that share a K/V head become rows of one product.
        grouped = query.reshape(width, kv_heads, group, dim).permute(1, 2, 0, 3)
        grouped = grouped.reshape(1, kv_heads, group * width, dim)
        mask = self._band(spec.window, width, offset, grouped)
        if spec.softcap or spec.sinks is not None:
            result = attend(grouped, keys[None], values[None], mask == 0, spec)
        else:
            result = functional.scaled_dot_product_attention(
                grouped, keys[None], values[None], attn_mask=mask, scale=spec.scale
            )
        return result.view(kv_heads, group, width, dim).permute(2, 0, 1, 3).reshape(width, -1)

    def _band(self, window: int, width: int, offset: int, query: Tensor) -> Tensor:
        """Mask [rows of `query`][offset + width]: 0 where i - window < j - offset <= i, else -inf.

        A slice of one wide band, because it depends on `j - offset` only; `width` rows repeat.
        """
        name = (window, width, query.shape[2])
        band = self._bands.get(name)
        if band is None or band.shape[1] < offset + width:
            columns = max(2 * offset, 1024) + width
            key = torch.arange(columns, device=query.device)[None] - (columns - width)
            row = torch.arange(width, device=query.device)[:, None]
            hidden = key > row
            if window:
                hidden |= key <= row - window
            band = torch.zeros(width, columns, dtype=query.dtype, device=query.device)
            band = band.masked_fill(hidden, float("-inf")).repeat(query.shape[2] // width, 1)
            if not self.canonical:
                self._bands.clear()
            self._bands[name] = band
        return band[:, band.shape[1] - width - offset :]


def _first_key(begin: int, window: int) -> int:
    """First key, on the grid, that a query block at `begin` may see."""
    return max(0, begin - window + 1) // GRID * GRID if window else 0
