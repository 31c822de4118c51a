"""What every way of running a model offers: one forward over a step's rows."""

from typing import Protocol

from torch import Tensor

from baton.engine.attention import Attention
from baton.engine.linear import Linear
from baton.engine.pool import Pool
from baton.engine.step import Step


class Forward(Protocol):
    """Runs a step; writes K/V of its rows into the pool, calling `step.on_layer` per layer."""

    linears: list[Linear]
    device: str
    min_rows: int
    attention: Attention

    def pad(self, num_rows: int) -> int:
        """Rows to run for `num_rows` rows; the extra ones are padding."""
        ...

    def run(self, step: Step, pool: Pool) -> Tensor:
        """Logits [sample rows][vocabulary] of the step."""
        ...
