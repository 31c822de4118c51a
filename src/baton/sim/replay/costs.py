"""What a replay asks of a machine: a measured service profile answers it, or an analytic model."""

from collections.abc import Sequence
from typing import Protocol

from baton.core.ids import Role
from baton.policy.phase_cost import PrefillRows
from baton.policy.service_profile import Contention, StepOverhead, Subject, TransferCost


class Costs(Protocol):
    """Times of one model on one machine, in microseconds."""

    @property
    def subject(self) -> Subject:
        """Model, layout and machine."""
        ...

    @property
    def transfer(self) -> TransferCost:
        """Moving a chunk to another worker."""
        ...

    @property
    def overhead(self) -> StepOverhead:
        """What serving adds to each step."""
        ...

    @property
    def contention(self) -> Contention:
        """What a busy neighbour on the same machine costs."""
        ...

    def step_us(self, prefills: Sequence[PrefillRows], visible_lengths: Sequence[int], /) -> float:
        """Engine time of one step; visible lengths count the current row."""
        ...


def of_role(costs: Costs, role: Role) -> Costs:
    """Of one worker: decode workers may be cut otherwise than the rest."""
    decode: Costs | None = getattr(costs, "decode", None)
    return decode if decode is not None and role is Role.DECODE else costs
