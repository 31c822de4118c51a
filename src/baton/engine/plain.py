"""The fused forward of plain decoders: Llama, Mistral, Qwen2, Qwen3 and what equals them.

Same mathematics as the transformers modules, with q/k/v and gate/up as one linear each, and the
operations between the linears fused. The self-test holds it to the transformers result.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

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


class Activations(NamedTuple):
    """What one layer hands to the next, `[rows][hidden]` each."""

    x: Tensor
    """The residual stream without the layer's last product, which is added with the next norm."""
    delta: Tensor | None
    """That product; None before the first layer."""


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
        return self.finish(step, self.run_layers(step, pool, self.begin(step)))

    def begin(self, step: Step) -> Activations:
        """The embedded rows of a step."""
        token_ids = step.token_ids.to(self._embedding.device)
        return Activations(self._embedding.index_select(0, token_ids), None)

    def run_layers(self, step: Step, pool: Pool, flow: Activations) -> Activations:
        """Run the layers that are here over rows that came from the layers before; `flow` is
        changed. Layers count from the first one here."""
        ops, eps = self._ops, self._eps
        x, delta = flow
        for i, layer in enumerate(self._layers):
            if delta is None:
                hidden = ops.rms_norm(x, layer.input_norm, eps)
            else:
                hidden = ops.add_rms_norm(delta, x, layer.input_norm, eps)
            qkv = layer.qkv.multiply(hidden)
            ops.rope_and_write(qkv, layer.head_norms, eps, self._rope, step, pool, i)
            pool.layer_written(i)
            if step.on_layer is not None:
                step.on_layer(i)
            attended = self.attention.run(qkv, layer.output.in_features, step, pool, i, layer.spec)
            delta = layer.output.multiply(attended)
            hidden = ops.add_rms_norm(delta, x, layer.post_norm, eps)
            delta = layer.down.multiply(ops.silu_mul(layer.gate_up.multiply(hidden)))
        return Activations(x, delta)

    def finish(self, step: Step, flow: Activations) -> Tensor:
        """Logits of the step's sample rows, from what the last layer gave."""
        assert flow.delta is not None, "a layer has run"
        hidden = self._ops.add_rms_norm(flow.delta, flow.x, self._final_norm, self._eps)
        logits: Tensor = self._head(hidden.index_select(0, step.sample_rows.to(hidden.device)))
        return logits

    @property
    def num_layers(self) -> int:
        """Layers that are here."""
        return len(self._layers)

    @property
    def hidden_size(self) -> int:
        """Scalars of a row between two layers."""
        return self._final_norm.shape[0]

    def keep(self, layers: range, *, num_layers: int) -> None:
        """Let go of all layers but these of `num_layers`, and of what begins or ends elsewhere."""
        kept = [self._layers[i] for i in layers]
        self._layers = kept
        if layers.start > 0:
            self._embedding = self._embedding.new_empty(0)
        self.linears = [
            linear for one in kept for linear in (one.qkv, one.output, one.gate_up, one.down)
        ]
        if layers.stop == num_layers:
            self.linears.append(self._head)
        else:
            del self._head

    def agree(self, min_rows: int) -> None:
        """Compute at least so many rows: all stages of a pipeline pad alike."""
        self.min_rows = min_rows
        for linear in self.linears:
            linear.min_rows = min_rows
