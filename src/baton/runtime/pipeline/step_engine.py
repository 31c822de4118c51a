"""What a worker needs of whatever computes for it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from baton.core.layout import ModelInfo
from baton.core.work import Batch, BatchResult


class StepEngine(Protocol):
    """A loaded model over a pool, in this process or in those of its pipeline stages."""

    info: ModelInfo
    deterministic_report: str

    def execute(self, batch: Batch, on_layer: Callable[[int], None] | None = None) -> BatchResult:
        """Run one step; see `Engine.execute`. Raises EngineLost when a process of it has ended."""
        ...

    def kv_digest(self, block_table: Sequence[int], num_tokens: int) -> str:
        """Digest of rows of all layers; see `Engine.kv_digest`."""
        ...

    def unbind_pool(self) -> None:
        """Let go of the pool before its memory is closed."""
        ...
