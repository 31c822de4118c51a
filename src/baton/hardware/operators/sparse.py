"""Attention of all layers of a model: full, windowed, sparse by an index, recurrent."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from baton.hardware.model import ModelShape
from baton.hardware.operators.attention import Attention
from baton.hardware.operators.columns import Floats
from baton.hardware.operators.folder import TableFolder
from baton.hardware.operators.precision import MEMORY_EFFICIENCY, roofline_us
from baton.hardware.operators.sharding import Sharding
from baton.hardware.system import System

_CHUNK = 64
"""Rows that a recurrent layer's prompt kernel takes at once."""


@dataclass(frozen=True, kw_only=True)
class AttentionLayers:
    """Of one rank; recurrent and index parts by roofline alone."""

    model: ModelShape
    system: System
    tp: int
    kernel: Attention
    is_measured: bool

    @classmethod
    def of(
        cls,
        folder: TableFolder,
        system: System,
        model: ModelShape,
        sharding: Sharding,
        kv_nbytes: float,
    ) -> "AttentionLayers":
        """The kernel nearest to this model's heads."""
        tp = sharding.tp
        kernel = Attention(
            folder,
            system,
            heads=max(model.num_heads / tp, 1.0),
            kv_heads=max(model.num_kv_heads / tp, 1.0),
            head_dim=model.head_dim,
            is_latent=bool(model.latent_dim),
            kv_nbytes=kv_nbytes,
        )
        plain = not (model.linear or model.index_heads or model.num_window_layers)
        return cls(
            model=model,
            system=system,
            tp=tp,
            kernel=kernel,
            is_measured=kernel.is_measured and plain,
        )

    def context_us(self, chunk: ArrayLike, visible: ArrayLike) -> Floats:
        """One chunk after visible rows, all layers."""
        n, v = (np.asarray(one, np.float64) for one in (chunk, visible))
        seen = self._limited(v)
        total = self.model.num_full_layers * self.kernel.context_us(n, seen)
        if self.model.num_window_layers:
            total = total + self.model.num_window_layers * self._windowed_us(n, v)
        if self.model.index_heads:
            pairs = n * v + 0.5 * n * (n + 1)
            total = total + self.model.num_full_layers * self._index_us(pairs, n + v)
        if self.model.linear:
            total = total + self.model.linear.num_layers * self._recurrent_us(n, np.ones_like(n))
        return np.asarray(total, np.float64)

    def generation_us(self, batch: ArrayLike, context: ArrayLike) -> Floats:
        """A batch of single rows, all layers."""
        b, s = (np.asarray(one, np.float64) for one in (batch, context))
        total = self.model.num_full_layers * self.kernel.generation_us(b, self._limited(s))
        if self.model.num_window_layers:
            near = np.minimum(s, self.model.window_tokens)
            total = total + self.model.num_window_layers * self.kernel.generation_us(b, near)
        if self.model.index_heads:
            total = total + self.model.num_full_layers * self._index_us(b * s, b * s)
        if self.model.linear:
            total = total + self.model.linear.num_layers * self._recurrent_us(b, b)
        return np.asarray(total, np.float64)

    def _limited(self, context: Floats) -> Floats:
        limit = self.model.sparse_tokens
        return np.minimum(context, limit) if limit else context

    def _windowed_us(self, chunk: Floats, visible: Floats) -> Floats:
        """A window's pairs, at the kernel's speed for a chunk as long."""
        window = self.model.window_tokens
        full = self.kernel.context_us(chunk, visible)
        pairs = chunk * visible + 0.5 * chunk * (chunk + 1)
        near = np.minimum(pairs, chunk * window)
        return np.asarray(np.maximum(full * near / pairs, roofline_us(0, 0, 1, 1)), np.float64)

    def _index_us(self, pairs: Floats, keys: Floats) -> Floats:
        """Scores of every visible key, one byte each."""
        width = self.model.index_dim
        peak = self.system.flops.get("fp8") or self.system.flops["bfloat16"]
        flops = 2 * pairs * self.model.index_heads * width
        return roofline_us(flops, keys * width, peak, self._bandwidth)

    def _recurrent_us(self, rows: Floats, sequences: Floats) -> Floats:
        """Every sequence's state is read and written once; rows meet it and their own chunk."""
        linear = self.model.linear
        assert linear is not None
        values = linear.num_value_heads / self.tp
        state = values * linear.value_dim * linear.key_dim
        flops = (
            2
            * rows
            * values
            * (3 * linear.value_dim * linear.key_dim + _CHUNK * (linear.value_dim + linear.key_dim))
        )
        moved = 2 * sequences * state * linear.state_nbytes_per_scalar
        moved = moved + rows * 2 * 4 * values * linear.value_dim
        return roofline_us(flops, moved, self.system.flops["bfloat16"], self._bandwidth)

    @property
    def _bandwidth(self) -> float:
        return self.system.memory_bytes_per_s * MEMORY_EFFICIENCY
