"""One measured step: what it held and how long it took."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from baton.core.digest import digest
from baton.policy.phase_cost import PrefillRows


class StepPhase(StrEnum):
    """What a step holds; a mixed one is a decode step with prefill rows beside it."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class StepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The median engine time of one shape; visible lengths count the current row."""

    prefills: tuple[PrefillRows, ...] = ()
    visible_lengths: tuple[int, ...] = ()
    step_us: float
    held_out: bool = False
    """Never used to fit, only to judge the fit."""

    @property
    def phase(self) -> StepPhase:
        """Which phase the step belongs to."""
        return phase_of(self.prefills, self.visible_lengths)


def phase_of(prefills: Sequence[PrefillRows], visible_lengths: Sequence[int]) -> StepPhase:
    """The phase of a step of these rows."""
    if not prefills:
        return StepPhase.DECODE
    return StepPhase.MIXED if visible_lengths else StepPhase.PREFILL


def points_digest(points: Sequence[StepPoint]) -> str:
    """Digest of raw points, so that a profile says which measurement it rests on."""
    return digest(list(points))
