"""What all requests of a trace have in common: counts, phases, bytes, and what bound them."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from baton.telemetry.trace.bound import bound_of
from baton.telemetry.trace.ledger import ByteLedger
from baton.telemetry.trace.phases import PHASES, Phase
from baton.telemetry.trace.story import Story


class PhaseShare(msgspec.Struct, frozen=True, kw_only=True):
    """One phase over all requests that had a first token, in microseconds."""

    phase: Phase
    mean_us: float
    p50_us: float
    p99_us: float
    share: float
    """Of the sum of all their times to the first token."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A duration over requests, in microseconds; 0 where there are none."""

    num: int
    mean_us: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    max_us: float = 0.0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The fold over all requests of a trace."""

    num_requests: int
    states: dict[str, int]
    modes: dict[str, int]
    """Of requests with a first token."""
    reasons: dict[str, int]
    """Why requests were rejected, failed or cancelled."""
    fallbacks: dict[str, int]
    """What failed attempts failed of, and what followed."""
    ttft: Spread
    tpot: Spread
    exposed: Spread
    """Exposed stall of requests that were handed over."""
    phases: tuple[PhaseShare, ...]
    bound: dict[str, int]
    """How many requests spent most of their time in which phase."""
    ledger: ByteLedger
    work_us: int
    wall_us: int
    num_retries: int
    num_prompt_tokens: int
    num_cached_tokens: int

    @property
    def overlap_us(self) -> int:
        """Work that ran beside other work of the same request."""
        return self.work_us - self.wall_us


def summarize(stories: Sequence[Story]) -> Summary:
    """Fold the stories of a trace."""
    answered = [one for one in stories if one.ttft_us]
    ledger = ByteLedger()
    for one in stories:
        ledger.add(one.ledger)
    unhappy = ("rejected", "failed", "cancelled")
    bounds = [bound_of(one) for one in stories]
    return Summary(
        num_requests=len(stories),
        states=_counts(one.state for one in stories),
        modes=_counts(one.mode for one in answered),
        reasons=_counts(one.reason for one in stories if one.state in unhappy and one.reason),
        fallbacks=_counts(text for one in stories for text in one.failures),
        ttft=_spread([one.ttft_us for one in answered]),
        tpot=_spread([one.tpot_us for one in answered if one.tpot_us]),
        exposed=_spread([one.work.exposed_us for one in answered if one.has_exposed]),
        phases=_phases(answered),
        bound=_counts(str(phase) for phase in bounds if phase),
        ledger=ledger,
        work_us=sum(one.work.work_us for one in stories),
        wall_us=sum(one.work.wall_us for one in stories),
        num_retries=sum(one.work.num_retries for one in stories),
        num_prompt_tokens=sum(one.num_tokens for one in answered),
        num_cached_tokens=sum(one.cached_tokens for one in answered),
    )


def _counts(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(num=0)
    array = np.asarray(values, dtype=np.float64)
    return Spread(
        num=len(values),
        mean_us=float(array.mean()),
        p50_us=float(np.percentile(array, 50)),
        p99_us=float(np.percentile(array, 99)),
        max_us=float(array.max()),
    )


def _phases(answered: Sequence[Story]) -> tuple[PhaseShare, ...]:
    if not answered:
        return ()
    rows = [one.tiling.durations_us for one in answered if one.tiling]
    table = np.asarray(rows, dtype=np.float64)
    total = max(1.0, float(table.sum()))
    p50, p99 = np.percentile(table, [50, 99], axis=0)
    return tuple(
        PhaseShare(
            phase=phase,
            mean_us=float(table[:, i].mean()),
            p50_us=float(p50[i]),
            p99_us=float(p99[i]),
            share=float(table[:, i].sum()) / total,
        )
        for i, phase in enumerate(PHASES)
    )
