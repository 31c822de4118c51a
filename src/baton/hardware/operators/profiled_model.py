"""Vidur's and Frontier's profiles as a predictor of the models that they profiled."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from baton.errors import ConfigError
from baton.hardware.curves import Domain, Grid, Line, StepCurves, StepSide
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.operators.columns import Floats
from baton.hardware.operators.folder import nearest_tables
from baton.hardware.operators.profiled import (
    FOLDERS,
    ProfiledAttention,
    all_reduce_us,
    attention_file,
    dense_file,
    dense_us,
    embedding_us,
)
from baton.hardware.operators.sharding import Sharding
from baton.hardware.operators.sparse import AttentionLayers
from baton.hardware.operators.terms import (
    BATCH_KNOTS,
    CHUNK_KNOTS,
    CONTEXT_KNOTS,
    VISIBLE_KNOTS,
)
from baton.hardware.parallel import Parallel
from baton.hardware.shards import check_parallel
from baton.hardware.system import System

_HEAD_NBYTES = 2.0
_MAX_KNOTS = 64


class ProfiledModel:
    """Linear layers of the very model; attention of the same heads, or of AIConfigurator's."""

    name = "profiled"

    def __init__(self, data: Path) -> None:
        self.data = data
        folders = [one for names in FOLDERS.values() for one in names]
        if not any((data / one).is_dir() for one in folders):
            raise ConfigError(
                f"{data}: no profiles; name the folder that holds {', '.join(folders)}"
            )

    def lacks(self, model: ModelShape, system: System) -> str | None:
        """Why it has nothing for a model and system, or None."""
        if system.name not in FOLDERS:
            return f"no profile of {system.name}; there are {', '.join(FOLDERS)}"
        if model.num_experts or model.latent_dim or model.linear:
            return f"{model.name} is no dense transformer; only such are composed from profiles"
        if dense_file(self.data, model, system) is None:
            return f"no profile with the dimensions of {model.name} on {system.name}"
        return None

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """One stage. Raises MissingCell for a TP that was not profiled."""
        check_parallel(model, parallel)
        if reason := self.lacks(model, system):
            raise MissingCell(f"profiled: {reason}")
        path = dense_file(self.data, model, system)
        assert path is not None
        rows = self._rows(path, model, system, parallel)
        attention, source, is_foreign = self._attention(model, system, parallel.tp)
        layers = -(-model.num_layers // parallel.pp)
        chunk, visible = np.meshgrid(CHUNK_KNOTS, VISIBLE_KNOTS, indexing="ij")
        batch, context = np.meshgrid(BATCH_KNOTS, CONTEXT_KNOTS, indexing="ij")
        side = StepSide(
            step_us=_head_us(model, system, parallel) / parallel.pp,
            rows=rows,
            prefill_attention=_grid(
                CHUNK_KNOTS, VISIBLE_KNOTS, layers * attention.context_us(chunk, visible)
            ),
            decode_grid=_grid(
                BATCH_KNOTS, CONTEXT_KNOTS, layers * attention.generation_us(batch, context)
            ),
        )
        return StepCurves(
            sides=(side,),
            source=f"{path.parent.parent.name}/{path.parent.name} layers, attention: {source}; "
            "vocabulary head by bandwidth",
            pipeline=parallel.pp,
            domain=Domain(max_rows=rows.knots[-1]),
            is_extrapolated=is_foreign,
        )

    def _rows(self, path: Path, model: ModelShape, system: System, parallel: Parallel) -> Line:
        knots, layer = dense_us(path, parallel.tp)
        _, embedding = embedding_us(path, parallel.tp)
        thin = np.unique(np.linspace(0, len(knots) - 1, min(_MAX_KNOTS, len(knots))).astype(int))
        knots, layer, embedding = knots[thin], layer[thin], embedding[thin]
        nbytes = knots * model.model_dim * 2.0
        reduce = 2 * all_reduce_us(self.data, system, nbytes, parallel.tp)
        layers = -(-model.num_layers // parallel.pp)
        values = layers * (layer + reduce) + embedding / parallel.pp
        return Line(knots=tuple(map(float, knots)), values_us=tuple(map(float, values)))

    def _attention(
        self, model: ModelShape, system: System, tp: int
    ) -> "tuple[ProfiledAttention | _OneLayer, str, bool]":
        path = attention_file(self.data, model, system, tp)
        if path is not None:
            found = ProfiledAttention(path, model, system, tp)
            return found, str(path.relative_to(self.data)), False
        folder = nearest_tables(self.data, system)
        layers = AttentionLayers.of(folder, system, model, Sharding(tp=tp), 2.0)
        return _OneLayer(layers, model), f"{folder.path.name} tables", not layers.is_measured


class _OneLayer:
    """Mean attention layer of a model."""

    def __init__(self, layers: AttentionLayers, model: ModelShape) -> None:
        self._layers, self._num = layers, model.num_layers

    def context_us(self, chunk: ArrayLike, visible: ArrayLike) -> Floats:
        return self._layers.context_us(chunk, visible) / self._num

    def generation_us(self, batch: ArrayLike, context: ArrayLike) -> Floats:
        return self._layers.generation_us(batch, context) / self._num


def _head_us(model: ModelShape, system: System, parallel: Parallel) -> float:
    """Its weights pass through memory once."""
    nbytes = model.head_parameters * _HEAD_NBYTES / parallel.tp
    return nbytes / (system.memory_bytes_per_s * system.memory_efficiency) * 1e6


def _grid(x: Floats, y: Floats, values: Floats) -> Grid:
    rows = tuple(tuple(map(float, row)) for row in values)
    return Grid(x=tuple(map(float, x)), y=tuple(map(float, y)), values_us=rows)
