"""The service profile: what one model's steps cost on one machine (0x03A)."""

import math
from collections.abc import Sequence

import msgspec

from baton.core.layout import ModelInfo
from baton.errors import ConfigError
from baton.policy.phase_cost import PrefillRows, Roofline, bytes_us, compute_us, step_work
from baton.policy.service_profile.budget import TokenBudget, largest_chunk
from baton.policy.service_profile.costs import (
    Contention,
    ServiceDelays,
    StepOverhead,
    TransferCost,
)
from baton.policy.service_profile.fit import FitError
from baton.policy.service_profile.point import phase_of
from baton.policy.service_profile.step_model import StepModel
from baton.policy.service_profile.subject import Subject


class ServiceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Measured once, asked for every simulated step and for every token budget."""

    subject: Subject
    measured_at: str
    """ISO 8601, UTC."""
    steps: StepModel
    roofline: Roofline
    """Peak rates of this engine: the slope of many rows, and the memory's read bandwidth."""
    transfer: TransferCost
    overhead: StepOverhead
    contention: Contention
    delays: ServiceDelays | None = None
    """None in profiles from before they were measured."""
    errors: dict[str, FitError]
    """By phase, over points that the fit has not seen."""
    num_points: int
    points_digest: str

    def step_us(
        self,
        prefills: Sequence[PrefillRows],
        visible_lengths: Sequence[int],
        *,
        neighbour_busy: bool = False,
    ) -> float:
        """Engine time of one step; visible lengths count the current row."""
        alone_us = self.steps.step_us(prefills, visible_lengths)
        if not neighbour_busy:
            return alone_us
        return alone_us * self.contention.factor(phase_of(prefills, visible_lengths))

    def served_step_us(
        self,
        prefills: Sequence[PrefillRows],
        visible_lengths: Sequence[int],
        *,
        neighbour_busy: bool = False,
    ) -> float:
        """From the start of one step to the start of the next: engine and serving overhead."""
        engine_us = self.step_us(prefills, visible_lengths, neighbour_busy=neighbour_busy)
        return engine_us + self.overhead.us(len(prefills) + len(visible_lengths))

    def token_budget(
        self, tbt_us: float, *, num_decodes: int, context: int, neighbour_busy: bool = False
    ) -> TokenBudget:
        """Sarathi-Serve's tau: the largest iteration that stays under a TBT target.

        `num_decodes` rows see `context` tokens each, and the chunk beside them follows `context`
        computed ones, which is its dearest place. Raises ConfigError for a target or a batch
        that means nothing.
        """
        if not (math.isfinite(tbt_us) and tbt_us > 0):
            raise ConfigError(f"tbt_us is {tbt_us}; give a positive number of microseconds")
        if num_decodes < 0 or context < 1:
            raise ConfigError(
                f"num_decodes is {num_decodes} and context {context}; use 0 or more and 1 or more"
            )

        def iteration_us(chunk: int) -> float:
            prefills = [PrefillRows(num_rows=chunk, num_visible=context)] if chunk else []
            if not (chunk or num_decodes):
                return 0.0
            visible = [context] * num_decodes
            return self.served_step_us(prefills, visible, neighbour_busy=neighbour_busy)

        most = max(1, self.steps.max_rows - num_decodes)
        chunk, outcome = largest_chunk(iteration_us, most, tbt_us)
        return TokenBudget(
            num_tokens=num_decodes + chunk,
            step_us=iteration_us(chunk),
            tbt_us=tbt_us,
            outcome=outcome,
        )

    def roofline_side(
        self, prefills: Sequence[PrefillRows], visible_lengths: Sequence[int]
    ) -> tuple[str, float, float]:
        """ "compute" or "bytes", whichever bound is longer, and both bounds in microseconds.

        Bounds are phase work over peak rates (0x02B) and not predictions; weights count as what
        this engine really reads.
        """
        work = step_work(self.subject.shape, prefills, visible_lengths)
        if work.num_rows:
            work = msgspec.structs.replace(work, weight_nbytes=self.subject.weight_nbytes)
        sides = compute_us(work, self.roofline), bytes_us(work, self.roofline)
        return ("compute" if sides[0] >= sides[1] else "bytes"), *sides

    def require_model(self, model: ModelInfo) -> None:
        """Raise ConfigError unless this profile belongs to the model that is served."""
        if found := self.subject.model_differences(model):
            raise ConfigError(
                f"the profile of {self.subject.identity.model!r} does not belong to the served "
                f"model {model.name!r}: {'; '.join(found)}; measure it with `baton profile`"
            )
