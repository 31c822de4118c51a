"""Which linear layers and elementwise passes a model has, on one rank."""

import msgspec

from baton.hardware.model import ModelShape
from baton.hardware.operators.sharding import Sharding

_ACTIVATION_NBYTES = 2


class Linear(msgspec.Struct, frozen=True, kw_only=True):
    """A product rows x inputs x outputs, so often in a step."""

    outputs: float
    inputs: float
    count: int


def attention_gemms(model: ModelShape, sharding: Sharding) -> list[Linear]:
    """Projections of every attention layer, recurrent ones too."""
    tp, d = sharding.tp, model.model_dim
    num = model.num_attention_layers
    found = [Linear(outputs=d, inputs=model.output_dim / tp, count=num)]
    if model.latent_dim:
        found += _latent_gemms(model, tp, num)
    else:
        kv = 2 * max(model.num_kv_heads / tp, 1.0) * model.head_dim
        gate = model.output_dim / tp if model.has_output_gate else 0.0
        found.append(Linear(outputs=model.query_dim / tp + gate + kv, inputs=d, count=num))
    if model.linear:
        keys = model.linear.num_key_heads * model.linear.key_dim
        values = model.linear.num_value_heads * model.linear.value_dim
        num = model.linear.num_layers
        found.append(Linear(outputs=(2 * keys + 2 * values) / tp, inputs=d, count=num))
        found.append(Linear(outputs=d, inputs=values / tp, count=num))
    return found


def _latent_gemms(model: ModelShape, tp: int, num: int) -> list[Linear]:
    """Down to the latents, up to this rank's heads; decode rows multiply by the same up-weights
    on the other side of attention.
    """
    d, ql = model.model_dim, model.q_latent_dim
    down = ql + model.latent_dim + model.rope_dim
    up = (model.num_heads * model.head_dim + model.output_dim) / tp
    found = [
        Linear(outputs=down, inputs=d, count=num),
        Linear(outputs=model.query_dim / tp, inputs=ql or d, count=num),
        Linear(outputs=up, inputs=model.latent_dim, count=num),
    ]
    if model.index_heads:
        index = model.index_heads * model.index_dim
        found.append(Linear(outputs=index, inputs=ql or d, count=num))
    return found


def ffn_gemms(model: ModelShape, sharding: Sharding) -> list[Linear]:
    """Dense feed-forwards, shared experts and routers; routed experts are elsewhere."""
    tp, d = sharding.tp, model.model_dim
    factor = 2 if model.is_gated else 1
    found = []
    if model.num_ffn_layers and model.ffn_dim:
        num = model.num_ffn_layers
        found.append(Linear(outputs=factor * model.ffn_dim / tp, inputs=d, count=num))
        found.append(Linear(outputs=d, inputs=model.ffn_dim / tp, count=num))
    if model.num_moe_layers:
        num = model.num_moe_layers
        found.append(Linear(outputs=model.num_experts, inputs=d, count=num))
        if model.num_shared_experts:
            shared = model.num_shared_experts * model.expert_dim / tp
            found.append(Linear(outputs=factor * shared, inputs=d, count=num))
            found.append(Linear(outputs=d, inputs=shared, count=num))
    return found


def elementwise_nbytes(model: ModelShape, sharding: Sharding) -> tuple[float, int]:
    """Bytes that one row moves through memory in one layer, and the number of kernels.

    Two norms with their residual sums (three passes each), rotation of queries and keys (two
    passes) and the activation (three).
    """
    tp = sharding.tp
    heads = model.query_dim / tp + 2 * max(model.num_kv_heads / tp, 1.0) * model.head_dim
    if model.latent_dim:
        heads = model.query_dim / tp + model.latent_dim
    hidden = model.ffn_dim / tp if model.num_ffn_layers > model.num_moe_layers else 0.0
    hidden += model.num_shared_experts * model.expert_dim / tp
    scalars = 6 * model.model_dim + 2 * heads + 3 * hidden
    return scalars * _ACTIVATION_NBYTES, 4
