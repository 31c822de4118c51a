"""The fused forward of plain decoders: Llama, Mistral, Qwen2, Qwen3 and what equals them.

Same mathematics as the transformers modules, with q/k/v and gate/up as one linear each, and the
operations between the linears fused. The self-test holds it to the transformers result.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from baton.engine.attention import Attention
from baton.engine.linear import Linear
from baton.engine.ops import AttentionSpec, TorchOps
from baton.engine.pool import Pool
from baton.engine.step import Step

_MODEL_TYPES = {"llama", "mistral", "qwen2", "qwen3"}
_ROPE_TYPES = {"default", "linear", "llama3", "yarn"}


@dataclass(frozen=True)
class _Layer:
    input_norm: Tensor
    qkv: Linear
    head_norms: Tensor
    spec: AttentionSpec
    output: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


def is_plain(model: Any) -> bool:
    """True when `model` is one that PlainForward computes."""
    config = model.config
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    partial = (getattr(config, "rope_parameters", None) or {}).get("partial_rotary_factor", 1.0)
    return (
        config.model_type in _MODEL_TYPES
        and rope in _ROPE_TYPES
        and partial in (None, 1.0)
        and getattr(config, "hidden_act", "") == "silu"
    )


class PlainForward:
    """Runs a plain decoder from its fused weights; the transformers modules give theirs up."""

    def __init__(
        self, model: Any, ops: TorchOps, attention: Attention, max_len: int, min_rows: int,
        packed: bool,
    ) -> None:  # fmt: skip
        self._ops, self.attention, self.min_rows = ops, attention, min_rows
        self.linears: list[Linear] = []
        self.device = str(model.device)
        config, inner = model.config, model.model
        # Copies, because one view would keep the whole checkpoint file mapped.
        self._embedding: Tensor = inner.embed_tokens.weight.detach().clone()
        self._eps = float(config.rms_norm_eps)
        positions = torch.arange(max_len, device=self._embedding.device)[None]
        cos, sin = inner.rotary_emb(torch.zeros(1, device=positions.device), positions)
        half = cos.shape[-1] // 2
        self._rope = torch.cat((cos[0, :, :half], sin[0, :, :half]), dim=-1).float().contiguous()
        self._layers = [self._take_layer(layer, min_rows, packed) for layer in inner.layers]
        self._final_norm: Tensor = inner.norm.weight.detach().clone()
        self._head = self._fuse([model.lm_head], min_rows, packed)

    def _take_layer(self, layer: Any, min_rows: int, packed: bool) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        config = attention.config
        if config.model_type == "mistral":
            window = getattr(config, "sliding_window", None)
        else:
            window = getattr(attention, "sliding_window", None)
        weight = layer.input_layernorm.weight.detach().clone()
        head_norms = weight.new_empty(2, 0)
        if hasattr(attention, "q_norm"):
            norms = (attention.q_norm.weight.detach(), attention.k_norm.weight.detach())
            head_norms = torch.stack(norms)
        return _Layer(
            input_norm=weight,
            qkv=self._fuse(
                [attention.q_proj, attention.k_proj, attention.v_proj], min_rows, packed
            ),
            head_norms=head_norms,
            spec=AttentionSpec(scale=float(attention.scaling), window=int(window or 0)),
            output=self._fuse([attention.o_proj], min_rows, packed),
            post_norm=layer.post_attention_layernorm.weight.detach().clone(),
            gate_up=self._fuse([mlp.gate_proj, mlp.up_proj], min_rows, packed),
            down=self._fuse([mlp.down_proj], min_rows, packed),
        )

    def _fuse(self, parts: list[nn.Linear], min_rows: int, packed: bool) -> Linear:
        """One linear for several over the same input; the parts' own weights are released."""
        weights = [part.weight.detach() for part in parts]
        bias = None
        if parts[0].bias is not None:
            bias = torch.cat([part.bias.detach() for part in parts])
        fused = Linear(
            torch.cat(weights) if len(weights) > 1 else weights[0], bias, min_rows, packed
        )
        for part in parts:
            part.weight = nn.Parameter(part.weight.detach().to("meta"), requires_grad=False)
        self.linears.append(fused)
        return fused

    def pad(self, num_rows: int) -> int:
        """Few rows are padded up to the linears' minimum."""
        return max(num_rows, self.min_rows)

    def run(self, step: Step, pool: Pool) -> Tensor:
        """Logits of the step's sample rows."""
        ops, eps = self._ops, self._eps
        token_ids = step.token_ids.to(self._embedding.device)
        x = self._embedding.index_select(0, token_ids)
        hidden = ops.rms_norm(x, self._layers[0].input_norm, eps)
        for i, layer in enumerate(self._layers):
            qkv = layer.qkv.multiply(hidden)
            ops.rope_and_write(qkv, layer.head_norms, eps, self._rope, step, pool, i)
            pool.layer_written(i)
            if step.on_layer is not None:
                step.on_layer(i)
            attended = self.attention.run(qkv, layer.output.in_features, step, pool, i, layer.spec)
            delta = layer.output.multiply(attended)
            hidden = ops.add_rms_norm(delta, x, layer.post_norm, eps)
            delta = layer.down.multiply(ops.silu_mul(layer.gate_up.multiply(hidden)))
            last = i + 1 == len(self._layers)
            norm = self._final_norm if last else self._layers[i + 1].input_norm
            hidden = ops.add_rms_norm(delta, x, norm, eps)
        logits: Tensor = self._head(hidden.index_select(0, step.sample_rows.to(hidden.device)))
        return logits
