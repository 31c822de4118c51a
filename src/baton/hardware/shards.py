"""What one GPU of an instance holds: its share of the layers, weights and K/V."""

import msgspec

from baton.errors import ConfigError
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """Of the GPU that holds most."""

    layer_share: float
    """Layers of the longest stage, over all layers."""
    weight_nbytes: float
    token_nbytes: float
    """K/V of one token."""
    sequence_nbytes: float


def check_parallel(model: ModelShape, parallel: Parallel) -> None:
    """Raise ConfigError where the model cannot be cut so."""
    if model.num_heads % parallel.tp:
        fitting = [n for n in range(1, model.num_heads + 1) if model.num_heads % n == 0]
        raise ConfigError(
            f"{model.name}: TP {parallel.tp} does not divide its {model.num_heads} heads; "
            f"use one of {', '.join(map(str, fitting))}"
        )
    if parallel.pp > model.num_layers:
        raise ConfigError(
            f"{model.name}: PP {parallel.pp} is more than its {model.num_layers} layers"
        )


def shard_of(model: ModelShape, parallel: Parallel) -> Shard:
    """K/V heads are divided while there are enough and copied then; latent K/V is copied."""
    check_parallel(model, parallel)
    share = -(-model.num_layers // parallel.pp) / model.num_layers
    kv_split = 1 if model.latent_dim else min(parallel.tp, model.num_kv_heads)
    table = model.head_parameters * max(2.0, model.weight_nbytes_per_param)
    tables = table * (1 if parallel.pp > 1 or model.ties_embeddings else 2)
    layers = model.weight_nbytes - table * (1 if model.ties_embeddings else 2)
    return Shard(
        layer_share=share,
        weight_nbytes=(layers * share + tables) / parallel.tp,
        token_nbytes=model.token_nbytes * share / kv_split,
        sequence_nbytes=model.sequence_nbytes * share / kv_split,
    )
