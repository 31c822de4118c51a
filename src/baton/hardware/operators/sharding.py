"""How a model lies over the GPUs of one instance, and in which precision it is stored."""

import msgspec

from baton.errors import ConfigError


class Sharding(msgspec.Struct, frozen=True, kw_only=True):
    """Attention over `tp` GPUs times `dp` independent ranks; experts over moe_tp times ep."""

    tp: int = 1
    dp: int = 1
    moe_tp: int = 1
    ep: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "dp", "moe_tp", "ep", "pp"):
            if getattr(self, name) < 1:
                raise ConfigError(f"sharding: {name} is {getattr(self, name)}; at least 1")

    @property
    def width(self) -> int:
        """GPUs of one stage."""
        return self.tp * self.dp

    @property
    def gpus(self) -> int:
        """Of one instance."""
        return self.width * self.pp

    def __str__(self) -> str:
        parts = [f"TP{self.tp}"]
        parts += [
            f"{name}{value}"
            for name, value in (("DP", self.dp), ("EP", self.ep), ("PP", self.pp))
            if value > 1
        ]
        return " ".join(parts)


class Quantisation(msgspec.Struct, frozen=True, kw_only=True):
    """Precisions by name (`precision.PRECISIONS`)."""

    gemm: str = "bfloat16"
    moe: str = "bfloat16"
    kv_nbytes: float = 2.0
    """Of one scalar."""
