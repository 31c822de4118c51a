"""What a model's K/V cache holds, whichever engine holds it and however it is cut."""

import msgspec

from baton.core.layout import DTYPE_NBYTES, KVLayout
from baton.errors import ConfigError

ROW_DTYPES = {**DTYPE_NBYTES, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1}
"""Bytes of a scalar. The forms of float8 have names of their own here: one byte, unlike numbers."""


class CacheShape(msgspec.Struct, frozen=True, kw_only=True):
    """The whole model's cache: both sides of a remap must agree on all of it."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    head_dim_v: int = 0
    """Of V, where it differs from K's; 0 where it does not."""
    dtype_k: str = "float32"
    dtype_v: str = "float32"
    latent_dim: int = 0
    """Scalars of the one compressed row a token has in a layer (MLA), rotary part included; there
    are no heads and no V then, and every rank of a stage holds the row."""
    scales: str = ""
    """Digest of the static scales of quantised K/V that come with the checkpoint; "" without."""
    has_row_scales: bool = False
    """Scales are computed with the rows and lie beside them."""

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"shape.{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("head_dim_v", "latent_dim"):
            if getattr(self, name) < 0:
                raise ConfigError(f"shape.{name} is {getattr(self, name)}; it cannot be negative")
        for name in ("dtype_k", "dtype_v"):
            if getattr(self, name) not in ROW_DTYPES:
                raise ConfigError(
                    f"shape.{name} is {getattr(self, name)!r}; use one of {sorted(ROW_DTYPES)}"
                )

    @property
    def is_latent(self) -> bool:
        """One row a token and layer instead of K and V by heads."""
        return self.latent_dim > 0

    @property
    def num_heads(self) -> int:
        """What tensor parallelism can divide: K/V heads, or the one latent row."""
        return 1 if self.is_latent else self.num_kv_heads

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes of one head's row in K and in V, or of the latent row."""
        if self.is_latent:
            return (self.latent_dim * ROW_DTYPES[self.dtype_k],)
        return (
            self.head_dim * ROW_DTYPES[self.dtype_k],
            (self.head_dim_v or self.head_dim) * ROW_DTYPES[self.dtype_v],
        )

    @property
    def planes(self) -> tuple[str, ...]:
        """Names of the entries of the kv axis."""
        return ("latent",) if self.is_latent else ("k", "v")

    @property
    def token_nbytes(self) -> int:
        """Bytes of one token over all layers and heads, each head once."""
        return self.num_layers * self.num_heads * sum(self.widths)


def shape_of(layout: KVLayout) -> CacheShape:
    """The shape of a layout that describes the whole model."""
    return CacheShape(
        num_layers=layout.num_layers,
        num_kv_heads=layout.num_kv_heads,
        head_dim=layout.head_dim,
        dtype_k=layout.dtype_k,
        dtype_v=layout.dtype_v,
        latent_dim=layout.latent_dim,
    )
