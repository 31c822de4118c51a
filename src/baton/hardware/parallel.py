"""How one instance of a model lies over GPUs."""

import msgspec

from baton.errors import ConfigError


class Parallel(msgspec.Struct, frozen=True, kw_only=True):
    """Tensor parallelism within each pipeline stage."""

    tp: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "pp"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} {getattr(self, name)}: at least 1")

    @property
    def gpus(self) -> int:
        """Of one instance."""
        return self.tp * self.pp

    def __str__(self) -> str:
        return f"TP{self.tp} PP{self.pp}"
