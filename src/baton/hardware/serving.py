"""What some sources know of an instance beside its step time."""

from typing import Protocol, runtime_checkable

import msgspec

from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.system import System


class ServingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Measured or published; None and 0 where the source does not say."""

    kv_tokens: int | None = None
    step_overhead_us: float = 0.0
    sequence_overhead_us: float = 0.0
    source: str = ""


@runtime_checkable
class KnowsServing(Protocol):
    """A predictor that has such facts."""

    def serving(self, model: ModelShape, system: System, parallel: Parallel) -> ServingFacts:
        """Of one instance."""
        ...
