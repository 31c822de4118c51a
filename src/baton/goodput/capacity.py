"""Goodput of a deployment with two pools, and what one GPU of it gives (specification 0x0A)."""

import math

import msgspec

from baton.errors import ConfigError


class PhaseCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: the requests a second that meet its target, over all its instances together."""

    goodput_per_s: float
    num_instances: int
    gpus_per_instance: int

    def __post_init__(self) -> None:
        if not math.isfinite(self.goodput_per_s) or self.goodput_per_s < 0:
            raise ConfigError(
                f"goodput_per_s = {self.goodput_per_s}: must be finite and not negative"
            )
        for name in ("num_instances", "gpus_per_instance"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: a pool has at least 1")

    @property
    def num_gpus(self) -> int:
        """Every GPU provisioned for the pool, idle or not."""
        return self.num_instances * self.gpus_per_instance


def system_goodput(prefill: PhaseCapacity, decode: PhaseCapacity) -> float:
    """Requests a second through both phases: the slow one decides."""
    return min(prefill.goodput_per_s, decode.goodput_per_s)


def goodput_per_gpu(prefill: PhaseCapacity, decode: PhaseCapacity) -> float:
    """Divided by the GPUs of both pools, the replicas of the faster phase included."""
    return system_goodput(prefill, decode) / (prefill.num_gpus + decode.num_gpus)
