"""The dimensions of a model, and what follows from them: parameters, bytes of weights and K/V."""

import msgspec

from baton.errors import ConfigError

_POSITIVE = ("num_layers", "model_dim", "num_heads", "num_kv_heads", "head_dim", "vocab_size")
_EMBEDDING_NBYTES = 2.0
"""Embeddings, vocabulary head and router stay in 16 bits when the rest is quantised."""
PRECISIONS = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5 + 2 / 32,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}
"""Bytes of one parameter, the scales of its group included: 32 to a group, NVFP4 16."""


class LinearAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Layers with a recurrent state of fixed size in place of K/V (gated delta rule)."""

    num_layers: int
    num_key_heads: int
    key_dim: int
    num_value_heads: int
    value_dim: int
    conv_size: int = 4
    state_nbytes_per_scalar: float = 4.0

    def parameters(self, model_dim: int) -> int:
        """Of one such layer: q, k, v, gate, two gates per head, convolution, output."""
        keys = self.num_key_heads * self.key_dim
        values = self.num_value_heads * self.value_dim
        inputs = model_dim * (2 * keys + 2 * values + 2 * self.num_value_heads)
        return inputs + self.conv_size * (2 * keys + values) + values * model_dim

    @property
    def state_nbytes(self) -> float:
        """Of one sequence over all such layers."""
        matrix = self.num_value_heads * self.value_dim * self.key_dim
        window = (self.conv_size - 1) * (
            2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim
        )
        return self.num_layers * (matrix + window) * self.state_nbytes_per_scalar


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder-only transformer. All zero where a family has no such part."""

    name: str
    num_layers: int
    """All of them, linear-attention ones too."""
    model_dim: int
    ffn_dim: int
    """Of the dense layers; 0 where every layer is a mixture of experts."""
    num_heads: int
    num_kv_heads: int
    head_dim: int
    """Of latent attention: the part of a query and key that is not rotated."""
    vocab_size: int
    is_gated: bool = True
    """Three matrices of a feed-forward and not two."""
    num_experts: int = 0
    experts_per_token: int = 0
    expert_dim: int = 0
    num_shared_experts: int = 0
    """Experts of `expert_dim` that every token takes."""
    num_dense_layers: int = 0
    """Of a mixture: layers with the dense feed-forward."""
    latent_dim: int = 0
    rope_dim: int = 0
    """The rotated part that latent K/V keeps beside `latent_dim`."""
    q_latent_dim: int = 0
    value_dim: int = 0
    """Of one head of latent attention; 0: head_dim."""
    index_dim: int = 0
    """Of a sparse attention's index keys, one byte each, kept for every token."""
    index_heads: int = 0
    sparse_tokens: int = 0
    """A row attends to so many tokens at most, chosen by the index; 0: to all."""
    has_output_gate: bool = False
    num_window_layers: int = 0
    """Attention layers that see the last `window_tokens` alone."""
    window_tokens: int = 0
    linear: LinearAttention | None = None
    num_positions: int = 0
    """Rows of a learned position table."""
    ties_embeddings: bool = False
    has_bias: bool = False
    weight_nbytes_per_param: float = 2.0
    """Of linear layers; embeddings, head and router have two bytes or this, if more."""
    expert_nbytes_per_param: float = 0.0
    """Of routed experts; 0: as other linear layers."""
    widens_weights: bool = False
    """Quantised weights alone: products are in 16 bits."""
    kv_nbytes_per_scalar: float = 2.0
    source: str = ""

    def __post_init__(self) -> None:
        for field in _POSITIVE:
            if getattr(self, field) < 1:
                raise ConfigError(f"{self.name}: {field} is {getattr(self, field)}; at least 1")
        if self.num_heads % self.num_kv_heads and not self.latent_dim:
            raise ConfigError(
                f"{self.name}: {self.num_heads} heads are no multiple of {self.num_kv_heads} K/V "
                "heads"
            )
        if self.num_experts and not 1 <= self.experts_per_token <= self.num_experts:
            raise ConfigError(
                f"{self.name}: experts_per_token is {self.experts_per_token}; "
                f"1 to num_experts, {self.num_experts}"
            )
        for field in ("weight_nbytes_per_param", "kv_nbytes_per_scalar"):
            if not 0 < getattr(self, field) <= 8:
                raise ConfigError(f"{self.name}: {field} is {getattr(self, field)}; above 0, to 8")

    @property
    def num_moe_layers(self) -> int:
        """Layers whose feed-forward is a mixture of experts."""
        return self.num_layers - self.num_dense_layers if self.num_experts else 0

    @property
    def num_ffn_layers(self) -> int:
        """Layers with a dense feed-forward."""
        return self.num_layers - self.num_moe_layers

    @property
    def num_attention_layers(self) -> int:
        """Layers that keep K/V."""
        return self.num_layers - (self.linear.num_layers if self.linear else 0)

    @property
    def num_full_layers(self) -> int:
        """Attention layers that see every token."""
        return self.num_attention_layers - self.num_window_layers

    @property
    def query_dim(self) -> int:
        """Width of all queries, the rotated part included."""
        return self.num_heads * (self.head_dim + (self.rope_dim if self.latent_dim else 0))

    @property
    def output_dim(self) -> int:
        """Width of all heads' outputs."""
        return self.num_heads * (self.value_dim or self.head_dim)

    @property
    def attention_parameters(self) -> int:
        """Of one attention layer that keeps K/V."""
        d, out = self.model_dim, self.output_dim
        if not self.latent_dim:
            gate = out if self.has_output_gate else 0
            key_value = 2 * self.num_kv_heads * self.head_dim
            return d * (self.query_dim + gate + key_value) + out * d
        ql = self.q_latent_dim
        query = ql * (d + self.query_dim) if ql else d * self.query_dim
        down = d * (self.latent_dim + self.rope_dim)
        up = self.latent_dim * (self.num_heads * self.head_dim + out)
        heads = self.index_heads
        index = heads * self.index_dim * (ql or d) + d * (self.index_dim + heads) if heads else 0
        return query + down + up + out * d + index

    @property
    def ffn_parameters(self) -> int:
        """Of one dense feed-forward."""
        return (3 if self.is_gated else 2) * self.model_dim * self.ffn_dim

    @property
    def expert_parameters(self) -> int:
        """Of one expert of one layer."""
        return (3 if self.is_gated else 2) * self.model_dim * self.expert_dim

    @property
    def all_attention_parameters(self) -> int:
        """Over all layers, linear attention included."""
        total = self.num_attention_layers * self.attention_parameters
        if self.linear:
            total += self.linear.num_layers * self.linear.parameters(self.model_dim)
        return total

    @property
    def all_expert_parameters(self) -> int:
        """Of every routed expert of every layer."""
        return self.num_moe_layers * self.num_experts * self.expert_parameters

    @property
    def dense_parameters(self) -> int:
        """Of every linear layer that each token passes: no routed experts, no embeddings."""
        shared = self.num_moe_layers * self.num_shared_experts * self.expert_parameters
        router = self.num_moe_layers * self.num_experts * self.model_dim
        ffn = self.num_ffn_layers * self.ffn_parameters
        return self.all_attention_parameters + ffn + shared + router

    @property
    def head_parameters(self) -> int:
        """Of the vocabulary head, tied or not: what a step multiplies by."""
        return self.vocab_size * self.model_dim

    @property
    def embedding_parameters(self) -> int:
        """Of what is stored in 16 bits: embeddings, head, positions, norms, biases."""
        tables = self.head_parameters * (1 if self.ties_embeddings else 2)
        norms = (2 * self.num_layers + 1) * self.model_dim
        positions = self.num_positions * self.model_dim
        return tables + positions + norms + (self._bias_parameters if self.has_bias else 0)

    @property
    def num_parameters(self) -> int:
        """Of the whole model, without extra prediction layers and without other modalities."""
        return self.dense_parameters + self.all_expert_parameters + self.embedding_parameters

    @property
    def num_active_parameters(self) -> int:
        """Of what one token passes, embeddings included."""
        used = self.num_moe_layers * self.experts_per_token * self.expert_parameters
        return self.dense_parameters + used + self.embedding_parameters

    @property
    def weight_nbytes(self) -> int:
        """Of the stored model."""
        expert = self.expert_nbytes_per_param or self.weight_nbytes_per_param
        kept = max(_EMBEDDING_NBYTES, self.weight_nbytes_per_param)
        return round(
            self.dense_parameters * self.weight_nbytes_per_param
            + self.all_expert_parameters * expert
            + self.embedding_parameters * kept
        )

    @property
    def row_nbytes(self) -> float:
        """K/V of one token in one attention layer."""
        if self.latent_dim:
            scalars = self.latent_dim + self.rope_dim
            return scalars * self.kv_nbytes_per_scalar + self.index_dim
        return 2 * self.num_kv_heads * self.head_dim * self.kv_nbytes_per_scalar

    @property
    def token_nbytes(self) -> int:
        """K/V that one more token adds for as long as its sequence lives: full attention alone."""
        return round(self.num_full_layers * self.row_nbytes)

    @property
    def sequence_nbytes(self) -> int:
        """What a long sequence holds beside that: windows and recurrent states."""
        windows = self.num_window_layers * self.window_tokens * self.row_nbytes
        return round(windows + (self.linear.state_nbytes if self.linear else 0.0))

    def quantised(self, weights: str | None = None, kv: str | None = None) -> "ModelShape":
        """With weights, K/V or both in a precision of `PRECISIONS`."""
        changed: dict[str, float | bool] = {}
        if weights is not None:
            changed["weight_nbytes_per_param"] = _nbytes(self.name, "weights", weights)
            changed |= {"expert_nbytes_per_param": 0.0, "widens_weights": weights == "int4"}
        if kv is not None:
            changed["kv_nbytes_per_scalar"] = _nbytes(self.name, "kv", kv)
        return msgspec.structs.replace(self, **changed)

    @property
    def _bias_parameters(self) -> int:
        kv = 2 * self.num_kv_heads * self.head_dim
        attention = self.query_dim + kv + self.model_dim
        return self.num_layers * (attention + self.ffn_dim + 3 * self.model_dim)


def _nbytes(name: str, what: str, precision: str) -> float:
    if precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise ConfigError(f"{name}: {what} in {precision!r}: use one of {known}")
    return PRECISIONS[precision]
