"""Paged decode attention in numba: reads K/V in place, one query row at a time."""

import math
from typing import Any

import numba
import numpy as np

from baton.engine.kernels import _EXACT, F32, _dot, _exp, _sum


@numba.njit(fastmath=_EXACT, nogil=True, cache=True)
def _scores(q: Any, k: Any, count: Any, scale: Any, softcap: Any, out: Any) -> Any:
    """Scores of `q` against rows of one block into `out`; returns their maximum."""
    top = F32(-np.inf)
    for s in range(count):
        score = _dot(q, k[s], q.shape[0]) * scale
        if softcap > F32(0.0):
            score = F32(math.tanh(score / softcap)) * softcap
        out[s] = score
        top = max(top, score)
    return top


@numba.njit(fastmath=_EXACT, nogil=True, cache=True)
def _accumulate(weights: Any, v: Any, count: Any, out: Any) -> None:
    """`out += weights @ v`, in slot order; four slots at once only to save loads and stores."""
    dim = out.shape[0]
    s = 0
    while s + 4 <= count:
        w0, w1, w2, w3 = weights[s], weights[s + 1], weights[s + 2], weights[s + 3]
        for d in range(dim):
            total = out[d]
            total = total + w0 * v[s, d]
            total = total + w1 * v[s + 1, d]
            total = total + w2 * v[s + 2, d]
            total = total + w3 * v[s + 3, d]
            out[d] = total
        s += 4
    while s < count:
        w0 = weights[s]
        for d in range(dim):
            out[d] = out[d] + w0 * v[s, d]
        s += 1


@numba.njit(fastmath=_EXACT, nogil=True, cache=True)
def _exponentials(row: Any, count: Any, top: Any) -> None:
    for s in range(count):
        row[s] = _exp(row[s] - top)


@numba.njit(fastmath=_EXACT, nogil=True, cache=True)
def paged_decode(
    q: Any, rows: Any, positions: Any, tables: Any, starts: Any, pool: Any,
    window: Any, scale: Any, softcap: Any, scratch: Any, out: Any,
) -> None:  # fmt: skip
    """Attention of query rows `q[rows[j]]` over positions `lo .. positions[j]` of their tables.

    `q` and `out` are [row][q head * dim]; `window` 0 means none, `softcap` 0 means none; `scratch`
    is [q heads per kv head][positions] float32.
    """
    kv_heads, size, dim = pool.shape[2], pool.shape[3], pool.shape[4]
    group = out.shape[1] // dim // kv_heads
    for j in range(rows.shape[0]):
        r, last = rows[j], positions[j]
        first = max(0, last - window + 1) if window > 0 else 0
        table = tables[starts[j] :]
        for h in range(kv_heads):
            base = h * group * dim
            top = np.full(group, F32(-np.inf), np.float32)
            position = first
            while position <= last:
                block, slot = table[position // size], position % size
                count = min(last + 1 - position, size - slot)
                for g in range(group):
                    here = scratch[g, position - first :]
                    query = q[r, base + g * dim : base + (g + 1) * dim]
                    found = _scores(query, pool[block, 0, h, slot:], count, scale, softcap, here)
                    top[g] = max(top[g], found)
                position += count
            num = last + 1 - first
            for g in range(group):
                _exponentials(scratch[g], num, top[g])
                out[r, base + g * dim : base + (g + 1) * dim] = F32(0.0)
            position = first
            while position <= last:
                block, slot = table[position // size], position % size
                count = min(last + 1 - position, size - slot)
                for g in range(group):
                    target = out[r, base + g * dim : base + (g + 1) * dim]
                    _accumulate(
                        scratch[g, position - first :], pool[block, 1, h, slot:], count, target
                    )
                position += count
            for g in range(group):
                inverse = F32(1.0) / _sum(scratch[g], num)
                for d in range(dim):
                    out[r, base + g * dim + d] *= inverse
