"""Which configuration each phase takes, and how many replicas: DistServe's choice (0x08C).

Pure arithmetic over phase goodputs, however those were found.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from baton.errors import ConfigError
from baton.goodput.capacity import PhaseCapacity, goodput_per_gpu, system_goodput
from baton.hardware.parallel import Parallel

SLACK = 1e-9
"""Relative: a target that a replica meets to within rounding needs no further one."""


class PhaseCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of one phase and the highest rate that one instance of it serves."""

    parallel: Parallel
    goodput_per_s: float
    max_batch_tokens: int = 0
    """Of a prefill step, where that is a choice."""

    def __post_init__(self) -> None:
        if not 0 <= self.goodput_per_s < math.inf:
            raise ConfigError(f"{self.parallel}: goodput_per_s = {self.goodput_per_s}")

    @property
    def per_gpu(self) -> float:
        """What the search maximises."""
        return self.goodput_per_s / self.parallel.gpus

    def __str__(self) -> str:
        return f"{self.parallel} ({self.goodput_per_s:.4g}/s)"


class PhasePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas of one prefill and one decode configuration."""

    prefill: PhaseCandidate
    num_prefill: int
    decode: PhaseCandidate
    num_decode: int

    @property
    def capacities(self) -> tuple[PhaseCapacity, PhaseCapacity]:
        """Of both pools, as if replicas shared nothing; a common queue only raises them."""
        return (
            _capacity(self.prefill, self.num_prefill),
            _capacity(self.decode, self.num_decode),
        )

    @property
    def goodput_per_s(self) -> float:
        """The slow pool decides."""
        return system_goodput(*self.capacities)

    @property
    def per_gpu(self) -> float:
        """Over every GPU of both pools."""
        return goodput_per_gpu(*self.capacities)

    @property
    def num_gpus(self) -> int:
        """Of both pools."""
        return sum(one.num_gpus for one in self.capacities)

    @property
    def num_copies(self) -> int:
        """Complete copies of the model that are resident."""
        return self.num_prefill + self.num_decode

    def __str__(self) -> str:
        return (
            f"{self.num_prefill} x prefill {self.prefill.parallel} + "
            f"{self.num_decode} x decode {self.decode.parallel}"
        )


def phase_goodput(samples: Sequence[tuple[float, float]], target: float) -> float:
    """The highest sampled rate up to which attainment reaches the target; 0 if none does.

    `samples` are (rate, attainment) on an immutable grid. A rate that passes above one that fails
    is luck: attainment falls with the rate.
    """
    best = 0.0
    for rate, attainment in sorted(samples):
        if attainment < target:
            break
        best = rate
    return best


def best_per_gpu(candidates: Sequence[PhaseCandidate]) -> PhaseCandidate | None:
    """The highest goodput per GPU, then the fewest GPUs, then the widest TP; None if all are 0."""
    served = [one for one in candidates if one.goodput_per_s > 0]
    return max(
        served,
        key=lambda one: (one.per_gpu, -one.parallel.gpus, one.parallel.tp),
        default=None,
    )


def replicas(target_per_s: float, goodput_per_s: float) -> int:
    """How many instances a rate needs."""
    if not target_per_s > 0 or not goodput_per_s > 0:
        raise ConfigError(
            f"replicas for {target_per_s}/s of {goodput_per_s}/s each: both must be above 0"
        )
    return max(1, math.ceil(target_per_s / goodput_per_s * (1 - SLACK)))


def plan_for_rate(
    prefill: Sequence[PhaseCandidate], decode: Sequence[PhaseCandidate], target_per_s: float
) -> PhasePlan | None:
    """DistServe's Algorithm 1: each phase by goodput per GPU, replicated to the target rate."""
    first, second = best_per_gpu(prefill), best_per_gpu(decode)
    if first is None or second is None:
        return None
    return PhasePlan(
        prefill=first,
        num_prefill=replicas(target_per_s, first.goodput_per_s),
        decode=second,
        num_decode=replicas(target_per_s, second.goodput_per_s),
    )


Value = Callable[[float, int], float]
"""Of a goodput on so many GPUs."""


def total(goodput_per_s: float, num_gpus: int) -> float:
    """The goodput itself."""
    return goodput_per_s


def plans_for_gpus(
    prefill: Sequence[PhaseCandidate],
    decode: Sequence[PhaseCandidate],
    num_gpus: int,
    value: Value = total,
) -> list[PhasePlan]:
    """Of each pair of configurations the counts that no other ones of at most so many GPUs beat.

    Best first by `value`, then by fewer GPUs. Of a pair, all counts of prefill instances are
    enumerated, each with as many decode instances as there is room for, without those that the slow
    pool does not need.
    """
    found = [
        plan
        for first in prefill
        for second in decode
        if first.goodput_per_s > 0 and second.goodput_per_s > 0
        if (plan := _best_counts(first, second, num_gpus, value)) is not None
    ]
    return sorted(
        found, key=lambda one: (-value(one.goodput_per_s, one.num_gpus), one.num_gpus, str(one))
    )


def _best_counts(
    prefill: PhaseCandidate, decode: PhaseCandidate, num_gpus: int, value: Value
) -> PhasePlan | None:
    best: tuple[float, int, PhasePlan] | None = None
    for num_prefill in range(1, num_gpus // prefill.parallel.gpus + 1):
        num_decode = (num_gpus - num_prefill * prefill.parallel.gpus) // decode.parallel.gpus
        if num_decode < 1:
            break
        plan = _trimmed(
            PhasePlan(
                prefill=prefill, num_prefill=num_prefill, decode=decode, num_decode=num_decode
            )
        )
        worth = value(plan.goodput_per_s, plan.num_gpus)
        # Rounding is no advantage: of equals the one with fewer GPUs.
        if best is None or (worth, -plan.num_gpus) > (best[0] * (1 + SLACK), best[1]):
            best = (worth, -plan.num_gpus, plan)
    return best[2] if best else None


def _trimmed(plan: PhasePlan) -> PhasePlan:
    """Without instances beyond what the slow pool can use."""
    rate = plan.goodput_per_s
    return msgspec.structs.replace(
        plan,
        num_prefill=replicas(rate, plan.prefill.goodput_per_s),
        num_decode=replicas(rate, plan.decode.goodput_per_s),
    )


def _capacity(candidate: PhaseCandidate, num: int) -> PhaseCapacity:
    return PhaseCapacity(
        goodput_per_s=candidate.goodput_per_s * num,
        num_instances=num,
        gpus_per_instance=candidate.parallel.gpus,
    )
