"""Numba kernels over float32 rows: each row's bits depend on that row alone.

Reductions may be reassociated into vector lanes, but the lanes depend only on the row's length,
never on the number of rows; everything else is evaluated as written. All release the GIL.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

F32 = np.float32
Kernel = TypeVar("Kernel", bound=Callable[..., Any])

# The numpy error model has no test for division by zero, which would keep loops scalar.
_options = {"nogil": True, "cache": True, "error_model": "numpy"}


def exact(function: Kernel) -> Kernel:
    """Compile so that every operation is evaluated as written; multiply-adds may fuse."""
    return cast(Kernel, numba.njit(fastmath={"contract"}, **_options)(function))


def reduction(function: Kernel) -> Kernel:
    """Compile so that sums may be split into vector lanes."""
    flags = {"reassoc", "nsz", "contract"}
    return cast(Kernel, numba.njit(fastmath=flags, **_options)(function))


@exact
def _exp(x: Any) -> Any:
    """exp(x) for x <= 0, to 2e-7 relative; below -87 it stays at exp(-87)."""
    x = max(x, F32(-87.0))
    n = np.int32(x * F32(1.44269504) - F32(0.5))
    r = x - F32(n) * F32(0.693359375)
    r = r + F32(n) * F32(2.12194440e-4)
    p = r * F32(1.0 / 720.0) + F32(1.0 / 120.0)
    p = p * r + F32(1.0 / 24.0)
    p = p * r + F32(1.0 / 6.0)
    p = p * r + F32(0.5)
    p = p * r + F32(1.0)
    p = p * r + F32(1.0)
    return p * np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)


@reduction
def _dot(a: Any, b: Any, n: Any) -> Any:
    total = F32(0.0)
    for d in range(n):
        total += a[d] * b[d]
    return total


@reduction
def total(a: Any, n: Any) -> Any:
    """Sum of the first `n` elements."""
    result = F32(0.0)
    for d in range(n):
        result += a[d]
    return result


@exact
def rms_norm(x: Any, weight: Any, eps: Any, out: Any) -> None:
    """`out[r] = weight * x[r] / rms(x[r])` for every row of `out`."""
    width = x.shape[1]
    for r in range(out.shape[0]):
        scale = F32(1.0) / F32(math.sqrt(_dot(x[r], x[r], width) / F32(width) + eps))
        for d in range(width):
            out[r, d] = weight[d] * (x[r, d] * scale)


@exact
def add_rms_norm(delta: Any, x: Any, weight: Any, eps: Any, out: Any) -> None:
    """`x += delta`, then `rms_norm(x)` into `out`."""
    width = x.shape[1]
    for r in range(out.shape[0]):
        for d in range(width):
            x[r, d] += delta[r, d]
        scale = F32(1.0) / F32(math.sqrt(_dot(x[r], x[r], width) / F32(width) + eps))
        for d in range(width):
            out[r, d] = weight[d] * (x[r, d] * scale)


@exact
def _silu_row(gate: Any, up: Any, out: Any, width: Any) -> None:
    for d in range(width):
        x = gate[d]
        # sigmoid(x) through exp(-|x|), which never overflows.
        e = _exp(-abs(x))
        numerator = F32(1.0) if x >= F32(0.0) else e
        out[d] = x * (numerator / (F32(1.0) + e)) * up[d]


@exact
def silu_mul(gate_up: Any, out: Any) -> None:
    """`out = silu(gate) * up` for rows `[gate | up]`."""
    width = out.shape[1]
    for r in range(out.shape[0]):
        _silu_row(gate_up[r, :width], gate_up[r, width:], out[r], width)


@exact
def _norm_rope(x: Any, weight: Any, eps: Any, cos: Any, sin: Any) -> None:
    """One head in place: RMS norm when `weight` is not empty, then rotary embedding."""
    dim, half = x.shape[0], x.shape[0] // 2
    if weight.shape[0] > 0:
        scale = F32(1.0) / F32(math.sqrt(_dot(x, x, dim) / F32(dim) + eps))
        for d in range(dim):
            x[d] = weight[d] * (x[d] * scale)
    for d in range(half):
        low, high = x[d], x[d + half]
        x[d] = low * cos[d] - high * sin[d]
        x[d + half] = high * cos[d] + low * sin[d]


@exact
def rope_and_write(
    qkv: Any, norms: Any, eps: Any, rope: Any, positions: Any, blocks: Any, slots: Any, pool: Any
) -> None:
    """Norm and rotate q and k of rows `[q | k | v]` in place; write k and v into the pool.

    `rope` is `[cos | sin]` by position; `norms` holds the q and the k norm weights, or is empty.
    """
    kv_heads, dim = pool.shape[2], pool.shape[4]
    heads = qkv.shape[1] // dim - 2 * kv_heads
    half = dim // 2
    for r in range(blocks.shape[0]):
        cos, sin = rope[positions[r], :half], rope[positions[r], half:]
        for h in range(heads + kv_heads):
            weight = norms[0] if h < heads else norms[1]
            _norm_rope(qkv[r, h * dim : (h + 1) * dim], weight, eps, cos, sin)
        for h in range(kv_heads):
            k, v = (heads + h) * dim, (heads + kv_heads + h) * dim
            for d in range(dim):
                pool[blocks[r], 0, h, slots[r], d] = qkv[r, k + d]
                pool[blocks[r], 1, h, slots[r], d] = qkv[r, v + d]


@exact
def write_kv(key: Any, value: Any, blocks: Any, slots: Any, pool: Any) -> None:
    """Write rows `key`, `value` of shape [row][kv head][dim] into the pool."""
    for r in range(blocks.shape[0]):
        for h in range(pool.shape[2]):
            for d in range(pool.shape[4]):
                pool[blocks[r], 0, h, slots[r], d] = key[r, h, d]
                pool[blocks[r], 1, h, slots[r], d] = value[r, h, d]


@exact
def gather_kv(pool: Any, table: Any, first: Any, last: Any, key: Any, value: Any) -> None:
    """Copy rows `first .. last` into `[kv head][row - first][dim]`; zero the rows behind them."""
    size, dim = pool.shape[3], pool.shape[4]
    for h in range(pool.shape[2]):
        position = first
        while position < last:
            block, slot = table[position // size], position % size
            stop = min(last - position, size - slot)
            for s in range(stop):
                for d in range(dim):
                    key[h, position - first + s, d] = pool[block, 0, h, slot + s, d]
                    value[h, position - first + s, d] = pool[block, 1, h, slot + s, d]
            position += stop
        for s in range(last - first, key.shape[1]):
            for d in range(dim):
                key[h, s, d] = F32(0.0)
                value[h, s, d] = F32(0.0)
