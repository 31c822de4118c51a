"""One kind of machine, with what a step costs on it, what it holds, and what it costs to have."""

from dataclasses import dataclass

from baton.errors import ConfigError
from baton.hardware.curves import StepCurves


@dataclass(frozen=True, kw_only=True)
class MachineType:
    """A whole machine runs one instance of the model on all its GPUs."""

    name: str
    curves: StepCurves
    kv_tokens: int
    gpus: int
    link_bytes_per_us: float
    """To and from other machines, all its adapters together."""
    cost: float
    power: float
    """Provisioned, not drawn: racks and contracts are sized by it."""
    step_overhead_us: float = 0.0
    sequence_overhead_us: float = 0.0
    warning: str = ""
    """Where nothing was measured."""

    def __post_init__(self) -> None:
        for name in ("kv_tokens", "gpus", "link_bytes_per_us", "cost", "power"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"machine {self.name!r}: {name} must be above 0")

    @property
    def letter(self) -> str:
        """In the name of a design: A, H, Hcap."""
        return self.name[:1].upper() + ("cap" if self.name.endswith("cap") else "")
