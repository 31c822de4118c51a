"""Paged decode attention in numba: reads K/V in place, once, one query row at a time.

A block's K and V of all heads are contiguous, so each block is read in one pass with a running
softmax. Indices are unsigned: numba then emits no wrap-around tests, and the loops vectorise.
"""

import math
from typing import Any

import numpy as np

from baton.engine.kernels import F32, _exp, exact, reduction

U64 = np.uint64
TILE = 16
"""Rows that share one step of the running softmax, at absolute positions: where blocks are at least
as long, the bits of a row do not depend on their size."""


@reduction
def _scores(
    q: Any, qo: Any, k: Any, ko: Any, count: Any, dim: Any, scale: Any, out: Any, oo: Any
) -> Any:
    """`out[s] = q . k[s] * scale` for `count` rows of a block, four at once; their maximum."""
    top = F32(-np.inf)
    s = U64(0)
    while s + U64(4) <= count:
        t0, t1, t2, t3 = F32(0.0), F32(0.0), F32(0.0), F32(0.0)
        k0 = ko + s * dim
        k1, k2, k3 = k0 + dim, k0 + dim + dim, k0 + dim + dim + dim
        for d in range(dim):
            x = q[qo + d]
            t0 += x * k[k0 + d]
            t1 += x * k[k1 + d]
            t2 += x * k[k2 + d]
            t3 += x * k[k3 + d]
        t0, t1, t2, t3 = t0 * scale, t1 * scale, t2 * scale, t3 * scale
        at = oo + s
        out[at], out[at + U64(1)], out[at + U64(2)], out[at + U64(3)] = t0, t1, t2, t3
        top = max(top, max(max(t0, t1), max(t2, t3)))
        s += U64(4)
    while s < count:
        t0 = F32(0.0)
        for d in range(dim):
            t0 += q[qo + d] * k[ko + s * dim + d]
        out[oo + s] = t0 * scale
        top = max(top, t0 * scale)
        s += U64(1)
    return top


@exact
def _accumulate(w: Any, wo: Any, v: Any, vo: Any, count: Any, dim: Any, out: Any, oo: Any) -> Any:
    """`out += w @ v` in slot order, eight slots for each load and store; returns sum(w)."""
    total = F32(0.0)
    s = U64(0)
    while s + U64(8) <= count:
        i = wo + s
        w0, w1, w2, w3 = w[i], w[i + U64(1)], w[i + U64(2)], w[i + U64(3)]
        w4, w5, w6, w7 = w[i + U64(4)], w[i + U64(5)], w[i + U64(6)], w[i + U64(7)]
        total += ((w0 + w1) + (w2 + w3)) + ((w4 + w5) + (w6 + w7))
        at = vo + s * dim
        for d in range(dim):
            t = out[oo + d]
            t = t + w0 * v[at + d]
            t = t + w1 * v[at + dim + d]
            t = t + w2 * v[at + U64(2) * dim + d]
            t = t + w3 * v[at + U64(3) * dim + d]
            t = t + w4 * v[at + U64(4) * dim + d]
            t = t + w5 * v[at + U64(5) * dim + d]
            t = t + w6 * v[at + U64(6) * dim + d]
            t = t + w7 * v[at + U64(7) * dim + d]
            out[oo + d] = t
        s += U64(8)
    while s < count:
        w0 = w[wo + s]
        total += w0
        for d in range(dim):
            out[oo + d] = out[oo + d] + w0 * v[vo + s * dim + d]
        s += U64(1)
    return total


@exact
def _cap(a: Any, count: Any, softcap: Any) -> None:
    for s in range(count):
        a[s] = F32(math.tanh(a[s] / softcap)) * softcap


@exact
def _rescale(state: Any, head: Any, top: Any, dim: Any, out: Any, oo: Any) -> None:
    """Raise the running maximum of `head` to `top`: shrink its sum and its output."""
    factor = _exp(state[0, head] - top)
    state[0, head] = top
    state[1, head] *= factor
    for d in range(dim):
        out[oo + d] *= factor


@exact
def _exponentials(a: Any) -> None:
    for s in range(a.shape[0]):
        a[s] = _exp(a[s])


@exact
def paged_decode(
    q: Any, rows: Any, positions: Any, tables: Any, starts: Any, pool: Any,
    window: Any, scale: Any, softcap: Any, out: Any,
) -> None:  # fmt: skip
    """Attention of query rows `q[rows[j]]` over positions `lo .. positions[j]` of their tables.

    `q` and `out` are [row][q head * dim], `q` possibly with more columns; `window` 0 means none,
    `softcap` 0 means none. No slot outside the visible positions is read.
    """
    kv_heads, size, dim = U64(pool.shape[2]), U64(pool.shape[3]), U64(pool.shape[4])
    heads, half = U64(out.shape[1]) // dim, kv_heads * size * dim
    group = heads // kv_heads
    flat, queries, outputs = pool.reshape(-1), q.reshape(-1), out.reshape(-1)
    tile = min(size, U64(TILE))
    # Whole vectors, because the vector loop over exponentials has a slow scalar remainder.
    scores = np.zeros((heads * tile + U64(63)) // U64(64) * U64(64), np.float32)
    state = np.empty((2, heads), np.float32)
    for j in range(rows.shape[0]):
        last = positions[j]
        position = U64(max(0, last - window + 1) if window > 0 else 0)
        end = U64(last + 1)
        q_base, o_base = U64(rows[j]) * U64(q.shape[1]), U64(rows[j]) * U64(out.shape[1])
        for d in range(heads * dim):
            outputs[o_base + d] = F32(0.0)
        state[0], state[1] = F32(-np.inf), F32(0.0)
        while position < end:
            slot = position % size
            count = min(end - position, tile - position % tile)
            base = U64(tables[U64(starts[j]) + position // size]) * U64(2) * half + slot * dim
            for head in range(heads):
                at, mine = base + head // group * size * dim, head * tile
                top = _scores(
                    queries, q_base + head * dim, flat, at, count, dim, scale, scores, mine
                )
                if softcap > F32(0.0):
                    _cap(scores[mine : mine + count], count, softcap)
                    top = F32(math.tanh(top / softcap)) * softcap
                if top > state[0, head]:
                    _rescale(state, head, top, dim, outputs, o_base + head * dim)
                for s in range(count):
                    scores[mine + s] -= state[0, head]
            _exponentials(scores)
            for head in range(heads):
                at = base + half + head // group * size * dim
                state[1, head] += _accumulate(
                    scores, head * tile, flat, at, count, dim, outputs, o_base + head * dim
                )
            position += count
        for head in range(heads):
            inverse = F32(1.0) / state[1, head]
            for d in range(dim):
                outputs[o_base + head * dim + d] *= inverse
