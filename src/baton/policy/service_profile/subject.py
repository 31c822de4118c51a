"""What a profile belongs to: another model, machine or kernel needs a profile of its own."""

import msgspec

from baton.core.layout import ModelIdentity, ModelInfo
from baton.policy.phase_cost import BlockShape


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, and how much of it one engine has."""

    cpu_model: str
    num_cores: int
    num_threads: int = 1
    """Threads of one engine."""
    read_bytes_per_us: float
    """Memory read bandwidth of one core."""


class Kernels(msgspec.Struct, frozen=True, kw_only=True):
    """What computes: versions and the deterministic mode with its report."""

    torch_version: str
    numba_version: str
    deterministic: bool
    report: str


class BatchCoordinates(msgspec.Struct, frozen=True, kw_only=True):
    """The batch policy and its bounds that the steps were measured under."""

    batch_policy: str
    max_batch_tokens: int
    max_num_seqs: int


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that must be the same for a profile to say something."""

    identity: ModelIdentity
    dtype: str
    shape: BlockShape
    """Dimensions, K/V layout included: what phase work is counted from."""
    weight_nbytes: int
    """Bytes of every matrix that a step multiplies by, the vocabulary head included."""
    hardware: Hardware
    kernels: Kernels
    batch: BatchCoordinates

    def differences(self, other: "Subject") -> list[str]:
        """What is not the same, each as "name: this, not that"; bounds of a batch may differ."""
        found = [
            *_differs("checkpoint", self.identity.digest, other.identity.digest),
            *_differs("dtype", self.dtype, other.dtype),
            *_differs("K/V layout", self.shape.layout.digest, other.shape.layout.digest),
        ]
        for name in ("cpu_model", "num_cores", "num_threads"):
            found += _differs(name, getattr(self.hardware, name), getattr(other.hardware, name))
        for name in ("torch_version", "numba_version", "deterministic"):
            found += _differs(name, getattr(self.kernels, name), getattr(other.kernels, name))
        return found

    def model_differences(self, model: ModelInfo) -> list[str]:
        """What is not the same about the model that is being served."""
        return [
            *_differs("checkpoint", self.identity.digest, model.identity.digest),
            *_differs("dtype", self.dtype, model.dtype),
            *_differs("K/V layout", self.shape.layout.digest, model.layout.digest),
            *_differs("deterministic", self.kernels.deterministic, model.deterministic),
        ]


def _differs(name: str, ours: object, theirs: object) -> list[str]:
    return [] if ours == theirs else [f"{name}: {ours}, not {theirs}"]
