"""How long a simulated engine takes for a step: constants, or a measured service profile."""

from collections.abc import Sequence
from typing import Protocol

from baton.core.work import Batch, WorkItem
from baton.policy.phase_cost import PrefillRows
from baton.policy.service_profile import ServiceProfile
from baton.sim.plan import Hardware


class StepTime(Protocol):
    """Predicts one engine step, in whole microseconds."""

    def step_us(self, batch: Batch, neighbour_busy: bool) -> int:
        """Time of the whole step at its normal speed."""
        ...


class LinearStepTime:
    """A fixed part and a part of each row, as a plan's hardware has them."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware

    def step_us(self, batch: Batch, neighbour_busy: bool) -> int:
        """A neighbour takes nothing away here."""
        del neighbour_busy
        return self._hardware.step_us + self._hardware.row_us * batch.num_rows


class ProfileStepTime:
    """What a measured profile predicts."""

    def __init__(self, profile: ServiceProfile) -> None:
        self._profile = profile

    def step_us(self, batch: Batch, neighbour_busy: bool) -> int:
        """Rounded, and never nothing."""
        prefills, visible = phase_rows(batch.items)
        predicted_us = self._profile.step_us(prefills, visible, neighbour_busy=neighbour_busy)
        return max(1, round(predicted_us))


def phase_rows(items: Sequence[WorkItem]) -> tuple[list[PrefillRows], list[int]]:
    """A batch as chunks of prompts and visible lengths of decode rows, wherever they stand.

    A sequence that is recomputed after its answer has begun has rows of both kinds.
    """
    prefills: list[PrefillRows] = []
    visible: list[int] = []
    for item in items:
        prompt_end = min(item.end, item.num_prompt_tokens)
        if item.start < prompt_end:
            prefills.append(PrefillRows(num_rows=prompt_end - item.start, num_visible=item.start))
        if item.end > item.num_prompt_tokens:
            visible += range(max(item.start, item.num_prompt_tokens) + 1, item.end + 1)
    return prefills, visible
