"""Operators as Vidur and Frontier profiled them: one model's layers, by tokens and by GPUs."""

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.operators.attention import context_roofline_us, generation_roofline_us
from baton.hardware.operators.columns import Columns, Floats, cached_columns
from baton.hardware.operators.surface import Surface
from baton.hardware.system import System

LAYER_OPERATORS = (
    "input_layernorm",
    "attn_pre_proj",
    "attn_rope",
    "attn_post_proj",
    "post_attention_layernorm",
    "mlp_up_proj",
    "mlp_act",
    "mlp_down_proj",
    "add",
)
"""Of each layer; `add` is there twice, after attention and after the feed-forward."""
FOLDERS = {
    "a100_sxm": ("vidur/compute/a100", "frontier/a100"),
    "h100_sxm": ("vidur/compute/h100", "frontier/h100"),
    "a800_sxm": ("frontier/a800",),
    "h800_sxm": ("frontier/h800",),
}
NETWORKS = {"a100_sxm": "vidur/network/a100_dgx", "h100_sxm": "vidur/network/h100_dgx"}
HISTORY = {"a100_sxm": "vidur/history/a100_attention.csv.gz"}
"""An older profile of attention alone."""
_US = 1e3


def dense_file(data: Path, model: ModelShape, system: System) -> Path | None:
    """The profile of a model with these dimensions on this system."""
    asked = (model.num_heads, model.num_kv_heads, model.model_dim, model.ffn_dim)
    for path in _files(data, system, ("mlp.csv.gz", "linear_op.csv.gz")):
        columns = cached_columns(path)
        names = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd")
        if asked == tuple(int(columns.numbers(name)[0]) for name in names):
            return path
    return None


def attention_file(data: Path, model: ModelShape, system: System, tp: int) -> Path | None:
    """The profile of attention with these heads over so many GPUs."""
    paths = _files(data, system, ("attention.csv.gz",))
    if system.name in HISTORY and (data / HISTORY[system.name]).exists():
        paths.append(data / HISTORY[system.name])
    for path in paths:
        columns = cached_columns(path)
        names = ("n_q_head", "n_kv_head", "n_embd")
        shape = tuple(int(columns.numbers(name)[0]) for name in names)
        gpus = columns.numbers("num_tensor_parallel_workers")
        if shape == (model.num_heads, model.num_kv_heads, model.model_dim) and (gpus == tp).any():
            return path
    return None


def _files(data: Path, system: System, names: tuple[str, ...]) -> list[Path]:
    folders = [data / one for one in FOLDERS.get(system.name, ())]
    return [
        model / name
        for folder in folders
        if folder.is_dir()
        for model in sorted(folder.iterdir())
        for name in names
        if (model / name).exists()
    ]


def dense_us(path: Path, tp: int) -> tuple[Floats, Floats]:
    """Profiled token counts, and one layer's linear and elementwise operators at each."""
    columns = cached_columns(path)
    chosen = columns.numbers("num_tensor_parallel_workers") == tp
    if not chosen.any():
        have = sorted({int(one) for one in columns.numbers("num_tensor_parallel_workers")})
        raise MissingCell(f"{path}: TP {tp} was not profiled; it has {have}")
    total = np.zeros(int(chosen.sum()))
    for name in LAYER_OPERATORS:
        if f"time_stats.{name}.median" in columns:
            times = 2 if name == "add" else 1
            total += times * _median_us(columns, name)[chosen]
    return _by_knot(columns.numbers("num_tokens")[chosen], total)


def embedding_us(path: Path, tp: int) -> tuple[Floats, Floats]:
    """Token counts, and the lookup of embeddings, once in a step."""
    columns = cached_columns(path)
    chosen = columns.numbers("num_tensor_parallel_workers") == tp
    return _by_knot(columns.numbers("num_tokens")[chosen], _median_us(columns, "emb")[chosen])


def _median_us(columns: Columns, name: str) -> Floats:
    return np.asarray(np.nan_to_num(columns.numbers(f"time_stats.{name}.median")) * _US, np.float64)


def _by_knot(knots: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Ascending; of several at one knot, the median."""
    axis = np.unique(knots)
    return axis, np.array([np.median(values[knots == one]) for one in axis])


@lru_cache(maxsize=16)
def _all_reduce(path: Path, num_gpus: int) -> tuple[Floats, Floats] | None:
    columns = cached_columns(path)
    chosen = columns.numbers("num_workers") == num_gpus
    chosen &= columns.numbers("devices_per_node") == min(num_gpus, 8)
    if not chosen.any():
        return None
    times = _median_us(columns, "all_reduce")[chosen]
    return _by_knot(columns.numbers("size")[chosen], times)


def all_reduce_us(data: Path, system: System, nbytes: ArrayLike, num_gpus: int) -> Floats:
    """Inside a node, as it was measured. Raises MissingCell where it was not."""
    size = np.asarray(nbytes, np.float64)
    if num_gpus == 1:
        return np.zeros(size.shape)
    if system.name not in NETWORKS:
        raise MissingCell(
            f"profiled: no all-reduce was profiled on {system.name}; only on {', '.join(NETWORKS)}"
        )
    path = data / NETWORKS[system.name] / "all_reduce.csv.gz"
    found = _all_reduce(path, num_gpus) if path.exists() else None
    if found is None:
        raise MissingCell(f"{path}: no all-reduce over {num_gpus} GPUs of one node")
    knots, values = found
    beyond = values[-1] * size / knots[-1]
    return np.asarray(np.where(size > knots[-1], beyond, np.interp(size, knots, values)))


class ProfiledAttention:
    """One rank's heads: factors over the roofline, exact at the profiled cells."""

    def __init__(self, path: Path, model: ModelShape, system: System, tp: int) -> None:
        self.model, self.system, self.path = model, system, path
        self.heads, self.kv_heads = model.num_heads / tp, max(1.0, model.num_kv_heads / tp)
        columns = cached_columns(path)
        chosen = columns.numbers("num_tensor_parallel_workers") == tp
        if "is_mixed_batch" in columns:
            chosen &= ~np.equal(columns.texts("is_mixed_batch"), "True")
        is_prefill = np.equal(columns.texts("is_prefill"), "True")
        self._context = self._prompts(columns, chosen & is_prefill)
        self._generation = self._rows(columns, chosen & ~is_prefill)

    def _prompts(self, columns: Columns, chosen: NDArray[np.bool_]) -> Surface:
        chosen = chosen & (columns.numbers("kv_cache_size") == 0)
        chosen &= (columns.numbers("batch_size") == 1) & (columns.numbers("prefill_chunk_size") > 0)
        if not chosen.any():
            raise MissingCell(f"{self.path}: no prompts were profiled")
        chunk = columns.numbers("prefill_chunk_size")[chosen]
        times = self._kernels_us(columns, "attn_prefill")[chosen]
        return Surface.of_points((chunk,), times / self._context_roof(chunk, 0.0))

    def _rows(self, columns: Columns, chosen: NDArray[np.bool_]) -> Surface:
        chosen = chosen & (columns.numbers("kv_cache_size") > 0)
        if not chosen.any():
            raise MissingCell(f"{self.path}: no decode rows were profiled")
        batch = columns.numbers("batch_size")[chosen]
        context = columns.numbers("kv_cache_size")[chosen]
        times = self._kernels_us(columns, "attn_decode")[chosen]
        return Surface.of_points((batch, context), times / self._generation_roof(batch, context))

    def _kernels_us(self, columns: Columns, kernel: str) -> Floats:
        names = (kernel, "attn_kv_cache_save", "attn_input_reshape", "attn_output_reshape")
        found = [_median_us(columns, n) for n in names if f"time_stats.{n}.median" in columns]
        return np.asarray(np.sum(found, axis=0), np.float64)

    def _context_roof(self, chunk: ArrayLike, visible: ArrayLike) -> Floats:
        dims = (float(self.model.head_dim), float(self.model.head_dim))
        return context_roofline_us(
            chunk, visible, 1.0, self.heads, self.kv_heads, dims, 2.0, self.system
        )

    def _generation_roof(self, batch: ArrayLike, context: ArrayLike) -> Floats:
        dims = (float(self.model.head_dim), float(self.model.head_dim))
        scalars = 2 * self.kv_heads * self.model.head_dim
        return generation_roofline_us(batch, context, self.heads, scalars, dims, 2.0, self.system)

    def context_us(self, chunk: ArrayLike, visible: ArrayLike) -> Floats:
        """One layer of one chunk after visible rows."""
        total = np.asarray(chunk, np.float64) + np.asarray(visible, np.float64)
        roof = self._context_roof(chunk, visible)
        return np.asarray(self._context.factor(total) * roof, np.float64)

    def generation_us(self, batch: ArrayLike, context: ArrayLike) -> Floats:
        """One layer of a batch of single rows."""
        roof = self._generation_roof(batch, context)
        return np.asarray(self._generation.factor(batch, context) * roof, np.float64)
