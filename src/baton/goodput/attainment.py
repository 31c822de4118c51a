"""The fraction of requests that meet their targets, by phase and jointly (specification 0x0A)."""

from collections.abc import Sequence

import msgspec

from baton.errors import ConfigError
from baton.goodput.counting import Classes, Counting, classify, counted
from baton.goodput.interval import (
    DEFAULT,
    Estimate,
    NothingToJudge,
    Sampling,
    bootstrap_proportion,
)
from baton.goodput.record import Outcome, RequestRecord
from baton.goodput.slo import SLOTargets

US_PER_S = 1_000_000


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """Which targets one counted request met; a target that is not set is met by all."""

    ttft: bool
    tpot: bool
    e2e: bool

    @property
    def all(self) -> bool:
        """Whether it passed every clock."""
        return self.ttft and self.tpot and self.e2e


MISSED = Met(ttft=False, tpot=False, e2e=False)
"""A request that failed, or was never sent."""


class Attainment(msgspec.Struct, frozen=True, kw_only=True):
    """All fractions over the one denominator `num_counted`; None where no target is set.

    `joint` is counted request by request: it cannot be had from the phases' fractions, which only
    bound it from above.
    """

    targets: SLOTargets
    counting: Counting
    classes: Classes
    num_counted: int
    num_joint_met: int
    duration_us: int
    ttft: Estimate | None
    tpot: Estimate | None
    e2e: Estimate | None
    joint: Estimate
    goodput: Estimate
    """Requests a second that met every target."""

    @property
    def phases(self) -> dict[str, Estimate]:
        """The attainment of each target that is set."""
        every = {"ttft": self.ttft, "tpot": self.tpot, "e2e": self.e2e}
        return {name: one for name, one in every.items() if one is not None}

    @property
    def ttft_passes(self) -> bool:
        """Whether enough requests met their TTFT target; False without one."""
        return self.ttft is not None and self.ttft.value >= self.targets.attainment

    @property
    def tpot_passes(self) -> bool:
        """Whether enough requests met their TPOT target; False without one."""
        return self.tpot is not None and self.tpot.value >= self.targets.attainment

    @property
    def phases_pass(self) -> bool:
        """DistServe's contract: each target is met by enough requests, be they different ones."""
        return all(one.value >= self.targets.attainment for one in self.phases.values())

    @property
    def joint_passes(self) -> bool:
        """Whether enough requests met every target."""
        return self.joint.value >= self.targets.attainment

    def describe(self) -> str:
        """Targets, denominator and rule in one line, without which the figures mean nothing."""
        return (
            f"{self.targets} for {self.targets.attainment:.4g} of {self.num_counted} counted "
            f"requests over {self.duration_us / US_PER_S:.4g} s ({self.classes}; "
            f"rule: {self.counting}; {self.joint.level:.4g} intervals)"
        )


def judge_each(
    records: Sequence[RequestRecord], targets: SLOTargets, counting: Counting | None = None
) -> list[Met]:
    """What each counted request met, in order of schedule; for intervals over repetitions."""
    return [_met(record, targets) for record in counted(records, counting or Counting())]


def judge(
    records: Sequence[RequestRecord],
    targets: SLOTargets,
    *,
    counting: Counting | None = None,
    duration_us: int | None = None,
    sampling: Sampling = DEFAULT,
) -> Attainment:
    """The attainment of a run's records.

    `duration_us` is the time that the goodput is divided by: by default from the first counted
    request's schedule to the last one's end. Nothing to count raises NothingToJudge.
    """
    counting = counting or Counting()
    classes = classify(records, counting)
    chosen = counted(records, counting)
    if not chosen:
        raise NothingToJudge(f"nothing to judge: no request counts ({classes}; rule: {counting})")
    span_us = duration_us if duration_us is not None else _span_us(chosen)
    if span_us < 1:
        raise ConfigError(f"duration_us = {span_us}: a goodput needs a duration above 0")
    met = judge_each(records, targets, counting)

    def fraction(num_met: int) -> Estimate:
        return bootstrap_proportion(num_met, len(met), sampling)

    num_ttft, num_tpot, num_e2e, num_joint = (
        sum(one.ttft for one in met),
        sum(one.tpot for one in met),
        sum(one.e2e for one in met),
        sum(one.all for one in met),
    )
    assert num_joint <= min(num_ttft, num_tpot, num_e2e), "one denominator, so joint is the least"
    joint = fraction(num_joint)
    return Attainment(
        targets=targets,
        counting=counting,
        classes=classes,
        num_counted=len(met),
        num_joint_met=num_joint,
        duration_us=span_us,
        ttft=fraction(num_ttft) if targets.ttft_us is not None else None,
        tpot=fraction(num_tpot) if targets.tpot_us is not None else None,
        e2e=fraction(num_e2e) if targets.e2e_us is not None else None,
        joint=joint,
        goodput=joint.times(len(met) * US_PER_S / span_us),
    )


def _span_us(records: Sequence[RequestRecord]) -> int:
    return max(one.end_us for one in records) - min(one.scheduled_us for one in records)


def _met(record: RequestRecord, targets: SLOTargets) -> Met:
    if record.outcome is not Outcome.COMPLETED:
        return MISSED
    # Without a first token there is nothing to be on time; with one only, no gap can be late.
    has_token = bool(record.token_times_us)
    return Met(
        ttft=has_token and _within(record.ttft_us, targets.ttft_us),
        tpot=has_token and _within(record.tpot_us, targets.tpot_us),
        e2e=_within(record.end_us - record.scheduled_us, targets.e2e_us),
    )


def _within(latency_us: float | None, target_us: int | None) -> bool:
    return target_us is None or latency_us is None or latency_us <= target_us
