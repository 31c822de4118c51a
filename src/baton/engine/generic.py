"""Any decoder over the paged pool: its own transformers modules, our attention function.

The model is loaded with the attention implementation "baton_paged", for which no mask function is
registered, so it builds no mask and no cache; each attention layer hands its q, k and v to us.
"""

import math
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from baton.engine.attention import Attention
from baton.engine.linear import Linear
from baton.engine.ops import AttentionSpec, TorchOps
from baton.engine.pool import Pool
from baton.engine.step import Step
from baton.errors import ModelRefused

IMPLEMENTATION = "baton_paged"
_VECTOR = 32
"""Elements that torch's vector loops take at once; the rest of a tensor is computed differently."""


@dataclass
class _Run:
    step: Step
    pool: Pool
    ops: TorchOps
    attention: Attention
    layers: list[int] = field(default_factory=list)


_RUN: ContextVar[_Run] = ContextVar("baton_run")


def paged_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, sliding_window: int | None = None,
    softcap: float | None = None, s_aux: Tensor | None = None, **_: object,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attention of one layer: `query` [1, q heads, rows, dim], `key`, `value` [1, kv heads, ...].

    Raises ModelRefused when the layer's K/V is not what the pool holds.
    """
    run = _RUN.get()
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    layout, rows = run.pool.layout, run.step.num_rows
    expected = (1, layout.num_kv_heads, run.step.num_padded, layout.head_dim)
    if tuple(key.shape) != expected or tuple(value.shape) != expected:
        shapes = f"K {tuple(key.shape)} and V {tuple(value.shape)}"
        raise ModelRefused(
            f"{type(module).__name__}: layer {layer} has {shapes}, the pool {expected}; "
            "models with different K and V (MLA) or mixed head sizes are not served"
        )
    _check_window(module, layer, sliding_window)
    run.layers.append(layer)
    run.ops.write_kv(
        key[0, :, :rows].transpose(0, 1), value[0, :, :rows].transpose(0, 1),
        run.step, run.pool, layer,
    )  # fmt: skip
    run.pool.layer_written(layer)
    if run.step.on_layer is not None:
        run.step.on_layer(layer)
    spec = AttentionSpec(
        scale=float(scaling if scaling is not None else 1 / math.sqrt(layout.head_dim)),
        window=int(sliding_window or 0),
        softcap=float(softcap or 0.0),
        sinks=s_aux,
    )
    flat = query[0].transpose(0, 1).reshape(run.step.num_padded, -1).contiguous()
    out = run.attention.run(flat, flat.shape[1], run.step, run.pool, layer, spec)
    return out.view(1, run.step.num_padded, query.shape[1], layout.head_dim), None


def _check_window(module: nn.Module, layer: int, window: int | None) -> None:
    """Refuse a layer that hides keys by its mask alone: the mask is what we do not build.

    The self-test is shorter than most windows and would not notice.
    """
    config = getattr(module, "config", None)
    types = getattr(config, "layer_types", None) or ()
    sliding = layer < len(types) and types[layer] == "sliding_attention"
    if sliding and getattr(config, "sliding_window", None) and not window:
        raise ModelRefused(
            f"{type(module).__name__}: layer {layer} has a sliding window that it does not pass on"
        )


class GenericForward:
    """Runs a transformers model whose attention layers call `paged_attention`."""

    def __init__(
        self, model: Any, ops: TorchOps, attention: Attention, num_layers: int, min_rows: int,
        packed: bool, pad_threads: int,
    ) -> None:  # fmt: skip
        from transformers import AttentionInterface

        AttentionInterface.register(IMPLEMENTATION, paged_attention)
        model.set_attn_implementation(IMPLEMENTATION)
        self._model, self._ops, self.attention = model, ops, attention
        self.device = str(model.device)
        self._num_layers, self.min_rows = num_layers, min_rows
        self._multiple = _row_multiple(model.config, pad_threads) if pad_threads else 1
        self.linears = _replace_linears(model, min_rows, packed)

    def pad(self, num_rows: int) -> int:
        """Pad to the linears' minimum and to whole vectors in torch's element-wise loops."""
        return -(-max(num_rows, self.min_rows) // self._multiple) * self._multiple

    def run(self, step: Step, pool: Pool) -> Tensor:
        """Logits of the step's sample rows."""
        run = _Run(step, pool, self._ops, self.attention)
        token = _RUN.set(run)
        device = pool.tensor.device
        try:
            output = self._model(
                input_ids=step.token_ids[None].to(device),
                position_ids=torch.from_numpy(step.positions)[None].to(device),
                use_cache=False,
                logits_to_keep=step.sample_rows.to(device),
            )
        finally:
            _RUN.reset(token)
        if run.layers != list(range(self._num_layers)):
            raise ModelRefused(
                f"{self._model.config.model_type}: attention ran for layers {run.layers}, not for "
                f"each of {self._num_layers} once and in order; its state is not plain K/V"
            )
        logits: Tensor = output.logits[0]
        return logits


def _row_multiple(config: Any, threads: int) -> int:
    """Rows after which every tensor of the model is a whole number of vectors.

    Torch shares an element-wise loop among 1 to `threads` threads: each share must be whole too.
    """
    vectors = _VECTOR * math.lcm(*range(1, threads + 1))
    names = ("hidden_size", "intermediate_size", "moe_intermediate_size", "head_dim")
    widths = [getattr(config, name, None) for name in names]
    common = math.gcd(vectors, *(width for width in widths if isinstance(width, int)))
    return vectors // common


def _replace_linears(model: nn.Module, min_rows: int, packed: bool) -> list[Linear]:
    """Swap every plain linear of the model for ours."""
    replaced: list[Linear] = []
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            weight = _linear_weight(child)
            if weight is not None:
                bias: Tensor | None = child.bias  # type: ignore[assignment]
                linear = Linear(weight, bias, min_rows, packed)
                setattr(parent, name, linear)
                replaced.append(linear)
    return replaced


def _linear_weight(module: nn.Module) -> Tensor | None:
    """The weight `[out, in]` of a plain linear layer, GPT-2's transposed kind included."""
    if type(module) is nn.Linear:
        return module.weight
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        weight: Tensor = module.weight  # type: ignore[assignment]
        return weight.t().contiguous()
    return None
