"""The K/V tensor ABI: how bytes of a cache block are decoded (specification 0x01A, 0x06)."""

import msgspec

from baton.core.digest import digest
from baton.errors import ConfigError

DTYPE_NBYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}
AXIS_ORDER = "layer,block,kv,head,slot,dim"


class KVLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Shape and representation of paged K/V state.

    One block of one layer holds `[K|V][num_kv_heads][block_size][head_dim]`, contiguous. A latent
    (MLA) layout sets `latent_dim`: one compressed row per token and layer, no separate K and V.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype_k: str = "float32"
    dtype_v: str = "float32"
    axis_order: str = AXIS_ORDER
    tp_size: int = 1
    pp_size: int = 1
    latent_dim: int = 0

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_kv_heads", "head_dim", "block_size", "tp_size", "pp_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"layout.{name} is {getattr(self, name)}; it must be at least 1")
        if self.pp_size > self.num_layers:
            raise ConfigError(
                f"layout.pp_size is {self.pp_size} with layout.num_layers {self.num_layers}; "
                "a pipeline stage holds one layer at least, so use fewer stages"
            )
        if self.latent_dim < 0:
            raise ConfigError(f"layout.latent_dim is {self.latent_dim}; it must not be negative")
        for name in ("dtype_k", "dtype_v"):
            if getattr(self, name) not in DTYPE_NBYTES:
                raise ConfigError(
                    f"layout.{name} is {getattr(self, name)!r}; use one of {sorted(DTYPE_NBYTES)}"
                )

    @property
    def row_nbytes(self) -> int:
        """Bytes of one token in one layer, K and V together."""
        if self.latent_dim:
            return self.latent_dim * DTYPE_NBYTES[self.dtype_k]
        scalar_nbytes = DTYPE_NBYTES[self.dtype_k] + DTYPE_NBYTES[self.dtype_v]
        return self.num_kv_heads * self.head_dim * scalar_nbytes

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token over all layers: L * H_kv * d_h * (b_K + b_V) (0x02A)."""
        return self.num_layers * self.row_nbytes

    @property
    def layer_block_nbytes(self) -> int:
        """Bytes of one block in one layer; the smallest unit that moves."""
        return self.block_size * self.row_nbytes

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block over all layers."""
        return self.num_layers * self.layer_block_nbytes

    def num_blocks(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` rows, the last one possibly padded."""
        return -(-num_tokens // self.block_size)

    @property
    def digest(self) -> str:
        """Digest of every field; equal digests mean bytes may be exchanged unchanged."""
        return digest(self)


class ModelIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What must agree before two workers may share K/V (0x10); every field is a content digest."""

    model: str
    checkpoint_hash: str
    tokenizer_hash: str
    adapter_hash: str = ""
    position_policy_hash: str = ""
    mask_policy_hash: str = ""

    @property
    def digest(self) -> str:
        """Digest of the semantic identity, without the display name."""
        return digest([getattr(self, f) for f in self.__struct_fields__ if f != "model"])


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway needs to know of a loaded model."""

    name: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    identity: ModelIdentity
    layout: KVLayout
    dtype: str = "float32"
    device: str = "cpu"
    deterministic: bool = True
    attention_backend: str = ""
    """Which kernels attend; another one may round otherwise."""
