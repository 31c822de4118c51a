"""Attainment per clock and jointly from the arrays of a simulation, by one declared rule.

The rules are those of `baton.goodput.attainment`: one denominator for all figures, a request that
failed missed, an output of one token has no TPOT to miss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.goodput.counting import CountAs
from baton.goodput.interval import DEFAULT, Estimate, NothingToJudge, Sampling, bootstrap_proportion
from baton.goodput.slo import SLOTargets
from baton.sim.fast.result import FastResult

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
NUM_BATCHES = 20


class TpotDefinition(StrEnum):
    """What a time per output token is."""

    AFTER_FIRST = "(last token - first token) / (tokens - 1)"
    """DistServe, vLLM."""
    PER_TOKEN = "(last token - first token) / tokens"
    """The Splitwise simulator's."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests count, and as what.

    The first and the last share of a simulation, by order of arrival, see a system that is still
    filling up or already emptying; they load it and are not judged.
    """

    warmup_share: float = 0.1
    cooldown_share: float = 0.1
    failed: CountAs = CountAs.MISSED
    """Refused, failed, too large for every worker, or not at its end when the simulation was."""
    single_token: CountAs = CountAs.MET
    tpot: TpotDefinition = TpotDefinition.AFTER_FIRST

    def __post_init__(self) -> None:
        for name in ("warmup_share", "cooldown_share"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: from 0 to below 1")
        if self.warmup_share + self.cooldown_share >= 1:
            raise ConfigError(
                f"warmup_share {self.warmup_share} + cooldown_share {self.cooldown_share} "
                "leave nothing to count; together they must stay below 1"
            )
        if self.failed is CountAs.MET or self.single_token is CountAs.MISSED:
            raise ConfigError(
                f"counting failed requests as {self.failed.value!r} and single-token TPOT as "
                f"{self.single_token.value!r}: failed ones are missed or left out, single tokens "
                "met or left out"
            )

    def __str__(self) -> str:
        return (
            f"failed {self.failed}, single-token TPOT {self.single_token}, first "
            f"{self.warmup_share:.0%} and last {self.cooldown_share:.0%} left out, TPOT = "
            f"{self.tpot}"
        )


WHOLE = Rule(warmup_share=0.0, cooldown_share=0.0)
"""Every request counts, as in most published simulators."""


@dataclass(frozen=True, kw_only=True)
class Met:
    """Which targets each counted request met; a target that is not set is met by all."""

    ttft: Bools
    tpot: Bools
    e2e: Bools

    @property
    def joint(self) -> Bools:
        """Those that passed every clock."""
        passed: Bools = self.ttft & self.tpot & self.e2e
        return passed

    def __len__(self) -> int:
        return len(self.ttft)


class Attained(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the counted requests met each target, and all of them at once."""

    targets: SLOTargets
    rule: Rule
    num_counted: int
    num_ttft: int
    num_tpot: int
    num_e2e: int
    num_joint: int
    inflation: float = 1.0
    """How many times the variance of the shares exceeds that of independent requests, which share
    no queue."""

    @property
    def shares(self) -> dict[str, float]:
        """Of each target that is set."""
        every = {
            "ttft": (self.targets.ttft_us, self.num_ttft),
            "tpot": (self.targets.tpot_us, self.num_tpot),
            "e2e": (self.targets.e2e_us, self.num_e2e),
        }
        return {
            name: num / self.num_counted
            for name, (target, num) in every.items()
            if target is not None
        }

    @property
    def joint(self) -> float:
        """Counted request by request; never derived from the shares, which only bound it."""
        return self.num_joint / self.num_counted

    @property
    def phases(self) -> float:
        """The least of the shares: DistServe's contract asks each clock by itself."""
        return min(self.shares.values())

    @property
    def binding(self) -> str:
        """The clock that most requests miss."""
        return min(self.shares, key=lambda name: self.shares[name])

    def estimates(self, sampling: Sampling = DEFAULT) -> dict[str, Estimate]:
        """Each share and the joint one with its interval, as if requests were independent."""
        counts = {"ttft": self.num_ttft, "tpot": self.num_tpot, "e2e": self.num_e2e}
        chosen = {name: counts[name] for name in self.shares} | {"joint": self.num_joint}
        return {
            name: bootstrap_proportion(num, self.num_counted, sampling)
            for name, num in chosen.items()
        }


def counted(result: FastResult, rule: Rule) -> Bools:
    """The requests of the denominator."""
    num = len(result.arrival_us)
    first = int(num * rule.warmup_share)
    chosen = np.zeros(num, np.bool_)
    chosen[first : num - int(num * rule.cooldown_share)] = True
    if rule.failed is CountAs.LEFT_OUT:
        chosen &= result.is_completed
    if rule.single_token is CountAs.LEFT_OUT:
        chosen &= ~(result.is_completed & (result.num_output < 2))
    return chosen


def met(result: FastResult, targets: SLOTargets, rule: Rule) -> Met:
    """What each counted request met. Raises NothingToJudge when none counts."""
    chosen = counted(result, rule)
    if not chosen.any():
        raise NothingToJudge(f"nothing to judge: no request of {len(chosen)} counts ({rule})")
    done = result.is_completed[chosen]
    return Met(
        ttft=done & _within(result.ttft_us[chosen], targets.ttft_us),
        tpot=done & _within(tpot_us(result, rule)[chosen], targets.tpot_us),
        e2e=done & _within(result.e2e_us[chosen], targets.e2e_us),
    )


def attain(result: FastResult, targets: SLOTargets, rule: Rule) -> Attained:
    """The attainment of one simulation."""
    found = met(result, targets, rule)
    attained = attained_of([found], targets, rule)
    return msgspec.structs.replace(attained, inflation=inflation(found.joint))


def inflation(series: Bools) -> float:
    """From batch means: variance of a batch's share over that of independent requests; at least 1.

    Neighbours in a queue are late together, so that a thousand requests say less than a thousand.
    """
    size = len(series) // NUM_BATCHES
    share = float(series.mean()) if len(series) else 0.0
    if size < 2 or share in (0.0, 1.0):
        return 1.0
    batches = series[: size * NUM_BATCHES].reshape(NUM_BATCHES, size).mean(axis=1)
    return max(1.0, float(batches.var(ddof=1)) * size / (share * (1 - share)))


def attained_of(parts: Sequence[Met], targets: SLOTargets, rule: Rule) -> Attained:
    """The attainment over the requests of several simulations together."""
    return Attained(
        targets=targets,
        rule=rule,
        num_counted=sum(len(one) for one in parts),
        num_ttft=sum(int(one.ttft.sum()) for one in parts),
        num_tpot=sum(int(one.tpot.sum()) for one in parts),
        num_e2e=sum(int(one.e2e.sum()) for one in parts),
        num_joint=sum(int(one.joint.sum()) for one in parts),
    )


def summed(parts: Sequence[Attained]) -> Attained:
    """Several simulations' counts together."""
    num = sum(one.num_counted for one in parts)
    return Attained(
        targets=parts[0].targets,
        rule=parts[0].rule,
        num_counted=num,
        num_ttft=sum(one.num_ttft for one in parts),
        num_tpot=sum(one.num_tpot for one in parts),
        num_e2e=sum(one.num_e2e for one in parts),
        num_joint=sum(one.num_joint for one in parts),
        inflation=sum(one.inflation * one.num_counted for one in parts) / num,
    )


def tpot_us(result: FastResult, rule: Rule) -> Floats:
    """Of each request, by the rule's definition; NaN without two tokens."""
    if rule.tpot is TpotDefinition.AFTER_FIRST:
        return result.tpot_us
    with np.errstate(invalid="ignore", divide="ignore"):
        each: Floats = (result.last_us - result.first_us) / result.num_output
    return np.where(result.num_output >= 2, each, np.nan)


def _within(latency_us: Floats, target_us: int | None) -> Bools:
    """NaN is a gap that does not exist, so it cannot be late."""
    if target_us is None:
        return np.ones(len(latency_us), np.bool_)
    within: Bools = ~(latency_us > target_us)
    return within
