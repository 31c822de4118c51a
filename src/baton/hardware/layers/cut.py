"""How an engine lies over GPUs, as far as layers see it."""

import msgspec

from baton.errors import ConfigError


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """`tp` GPUs share one rank's layers; `dp` ranks, each with its own batch, step together.

    With `is_expert_parallel` the experts lie over all GPUs of all ranks; else every rank's GPUs
    would hold a slice of every expert.
    """

    tp: int = 1
    dp: int = 1
    is_expert_parallel: bool = False

    def __post_init__(self) -> None:
        for name in ("tp", "dp"):
            if getattr(self, name) < 1:
                raise ConfigError(f"cut.{name} is {getattr(self, name)}; at least 1")

    @property
    def expert_gpus(self) -> int:
        """GPUs that the experts lie over, one by one."""
        return self.tp * self.dp if self.is_expert_parallel else 1

    def __str__(self) -> str:
        text = f"TP{self.tp}" + (f" DP{self.dp}" if self.dp > 1 else "")
        return text + (" EP" if self.is_expert_parallel else "")
