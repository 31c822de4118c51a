"""Attention over plain and latent K/V, of prompts and of single rows."""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baton.errors import ConfigError
from baton.hardware.operators.columns import Columns, Floats
from baton.hardware.operators.folder import TableFolder
from baton.hardware.operators.precision import roofline_us
from baton.hardware.operators.surface import Surface
from baton.hardware.system import System

_HEAD_DIM = 128
LATENT, ROPE, NOPE, VALUE = 512, 64, 128, 128
"""DeepSeek's latent attention, which the tables were measured with."""


def context_roofline_us(
    chunk: ArrayLike,
    visible: ArrayLike,
    batch: ArrayLike,
    heads: float,
    kv_heads: float,
    dims: tuple[float, float],
    kv_nbytes: float,
    system: System,
) -> Floats:
    """Rows see what is before them; `dims` are those of a key and of a value."""
    n, v, b = (np.asarray(one, np.float64) for one in (chunk, visible, batch))
    pairs = n * v + 0.5 * n * (n + 1)
    flops = 2 * b * heads * pairs * (dims[0] + dims[1])
    nbytes = b * (
        2 * 2 * n * heads * dims[1] + kv_heads * (n + v) * (dims[0] + dims[1]) * kv_nbytes
    )
    return roofline_us(flops, nbytes, system.flops["bfloat16"], system.memory_bytes_per_s)


def generation_roofline_us(
    batch: ArrayLike,
    context: ArrayLike,
    heads: float,
    scalars: float,
    dims: tuple[float, float],
    kv_nbytes: float,
    system: System,
) -> Floats:
    """Every row reads the `scalars` that each visible token keeps."""
    b, s = (np.asarray(one, np.float64) for one in (batch, context))
    flops = 2 * b * heads * s * (dims[0] + dims[1])
    nbytes = b * s * scalars * kv_nbytes + 4 * b * heads * dims[1]
    return roofline_us(flops, nbytes, system.flops["bfloat16"], system.memory_bytes_per_s)


def _kv_name(kv_nbytes: float) -> str:
    return "fp8" if kv_nbytes < 2 else "bfloat16"


@lru_cache(maxsize=256)
def _context_surface(
    folder: TableFolder, kv: str, heads: int, kv_heads: int, is_latent: bool
) -> Surface:
    columns = folder.columns(*_source("context", is_latent))
    chosen = _rows_of(columns, folder, kv, heads, kv_heads, is_latent)
    batch, length = columns.numbers("batch_size")[chosen], columns.numbers("isl")[chosen]
    measured = columns.numbers("latency_ms")[chosen] * 1e3
    dims = (NOPE + ROPE, VALUE) if is_latent else (_HEAD_DIM, _HEAD_DIM)
    roof = context_roofline_us(
        length,
        0.0,
        batch,
        heads,
        heads if is_latent else kv_heads,
        dims,
        2.0 if is_latent or kv == "bfloat16" else 1.0,
        folder.system,
    )
    return Surface.of_points((batch, length), measured / roof)


@lru_cache(maxsize=256)
def _generation_surface(
    folder: TableFolder, kv: str, heads: int, kv_heads: int, is_latent: bool
) -> Surface:
    columns = folder.columns(*_source("generation", is_latent))
    chosen = _rows_of(columns, folder, kv, heads, kv_heads, is_latent)
    batch = columns.numbers("batch_size")[chosen]
    context = columns.numbers("isl")[chosen] + columns.numbers("step")[chosen]
    measured = columns.numbers("latency_ms")[chosen] * 1e3
    scalars, dims = generation_dims(kv_heads, is_latent)
    nbytes = 1.0 if kv == "fp8" else 2.0
    roof = generation_roofline_us(batch, context, heads, scalars, dims, nbytes, folder.system)
    return Surface.of_points((batch, context), measured / roof)


def generation_dims(kv_heads: float, is_latent: bool) -> tuple[float, tuple[float, float]]:
    """Scalars that a token keeps, and the widths of a key and a value as they are multiplied."""
    if is_latent:
        return LATENT + ROPE, (LATENT + ROPE, LATENT)
    return 2 * kv_heads * _HEAD_DIM, (_HEAD_DIM, _HEAD_DIM)


def _source(phase: str, is_latent: bool) -> tuple[str, str]:
    return (f"{phase}_mla", "trtllm") if is_latent else (f"{phase}_attention", "vllm")


def _rows_of(
    columns: Columns, folder: TableFolder, kv: str, heads: int, kv_heads: int, is_latent: bool
) -> NDArray[np.bool_]:
    """Of one head shape, with K/V in the asked width where that was measured."""
    chosen = np.equal(columns.numbers("num_heads"), heads)
    if not is_latent:
        chosen &= np.equal(columns.numbers("num_key_value_heads"), kv_heads)
    narrow = chosen & np.equal(columns.texts("kv_cache_dtype"), kv)
    if narrow.any():
        return narrow
    if not chosen.any():
        raise ConfigError(f"{folder.path}: attention of {heads}/{kv_heads} heads is not there")
    return chosen


@lru_cache(maxsize=64)
def _heads_measured(
    folder: TableFolder, phase: str, is_latent: bool
) -> tuple[tuple[int, int], ...]:
    columns = folder.columns(*_source(phase, is_latent))
    heads = columns.numbers("num_heads").astype(int)
    if is_latent:
        return tuple((int(one), 1) for one in np.unique(heads))
    pairs = np.unique(np.stack([heads, columns.numbers("num_key_value_heads").astype(int)]), axis=1)
    return tuple((int(a), int(b)) for a, b in pairs.T)


def _nearest_heads(
    folder: TableFolder, phase: str, is_latent: bool, heads: float, kv_heads: float
) -> tuple[int, int]:
    def distance(pair: tuple[int, int]) -> tuple[float, float]:
        group = abs(np.log(pair[0] / pair[1] / (heads / kv_heads))) if not is_latent else 0.0
        return abs(float(np.log(pair[0] / heads))) + 0.5 * float(group), pair[0]

    return min(_heads_measured(folder, phase, is_latent), key=distance)


class Attention:
    """Of the heads that one rank holds. Head widths other than 128 keep the factor of 128."""

    def __init__(
        self,
        folder: TableFolder,
        system: System,
        *,
        heads: float,
        kv_heads: float,
        head_dim: float,
        is_latent: bool,
        kv_nbytes: float,
    ) -> None:
        self.folder, self.system = folder, system
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.is_latent, self.kv_nbytes = is_latent, kv_nbytes
        kv = _kv_name(kv_nbytes)
        near = _nearest_heads(folder, "context", is_latent, heads, kv_heads)
        self._context = _context_surface(folder, kv, *near, is_latent)
        near_one = _nearest_heads(folder, "generation", is_latent, heads, kv_heads)
        self._generation = _generation_surface(folder, kv, *near_one, is_latent)
        asked = (heads, 1 if is_latent else kv_heads)
        self.is_measured = (
            folder.system.name == system.name
            and near == asked
            and near_one == asked
            and (is_latent or head_dim == _HEAD_DIM)
        )

    def context_us(self, chunk: ArrayLike, visible: ArrayLike) -> Floats:
        """One chunk after visible rows: the factor of a prompt as long as both together."""
        total = np.asarray(chunk, np.float64) + np.asarray(visible, np.float64)
        dims = (NOPE + ROPE, VALUE) if self.is_latent else (self.head_dim, self.head_dim)
        roof = context_roofline_us(
            chunk,
            visible,
            1.0,
            self.heads,
            self.heads if self.is_latent else self.kv_heads,
            dims,
            2.0 if self.is_latent else self.kv_nbytes,
            self.system,
        )
        return np.asarray(self._context.factor(1.0, total) * roof, np.float64)

    def generation_us(self, batch: ArrayLike, context: ArrayLike) -> Floats:
        """A batch of single rows that see `context` tokens each."""
        scalars, dims = generation_dims(self.kv_heads, self.is_latent)
        if not self.is_latent:
            scalars, dims = 2 * self.kv_heads * self.head_dim, (self.head_dim, self.head_dim)
        roof = generation_roofline_us(
            batch, context, self.heads, scalars, dims, self.kv_nbytes, self.system
        )
        return np.asarray(self._generation.factor(batch, context) * roof, np.float64)
