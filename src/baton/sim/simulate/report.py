"""What a simulation found, as plain values; equal plans give equal figures."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from baton.goodput.attainment import Attainment
from baton.goodput.record import Outcome, RequestRecord
from baton.sim.replay.client import ReplayCounts
from baton.workload.request import Workload


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt rows that workers did not compute, of all rows of prompts that were served.

    Counted on the trace's own lengths, so that rounded prompts do not change what a row is.
    """

    num_prompt_tokens: int
    num_cached_tokens: int
    num_prompt_blocks: int
    """A partly filled last block counts as one."""
    num_cached_blocks: int

    @property
    def token_ratio(self) -> float:
        """Cached rows of all rows."""
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0

    @property
    def block_ratio(self) -> float:
        """Cached blocks of all blocks."""
        return self.num_cached_blocks / self.num_prompt_blocks if self.num_prompt_blocks else 0.0


def reuse_of(
    workload: Workload,
    records: Sequence[RequestRecord],
    num_cached_tokens: Sequence[int],
    block_size: int,
) -> Reuse:
    """Over the requests that completed."""
    sums: Counter[str] = Counter()
    for wanted, record, cached in zip(workload.requests, records, num_cached_tokens, strict=True):
        if record.outcome is not Outcome.COMPLETED:
            continue
        sums["tokens"] += wanted.num_prompt_tokens
        sums["cached"] += min(cached, wanted.num_prompt_tokens)
        sums["blocks"] += -(-wanted.num_prompt_tokens // block_size)
        sums["cached blocks"] += cached // block_size
    return Reuse(
        num_prompt_tokens=sums["tokens"],
        num_cached_tokens=sums["cached"],
        num_prompt_blocks=sums["blocks"],
        num_cached_blocks=sums["cached blocks"],
    )


class WorkerShare(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's part of the work."""

    worker_id: str
    num_blocks: int
    num_steps: int
    busy: float
    """Share of the virtual time in which its engine computed."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `--json` writes."""

    workload: str
    notes: tuple[str, ...]
    hardware: str
    config_digest: str
    policy: str
    num_requests: int
    num_completed: int
    failures: dict[str, int]
    """Requests without an answer, by the code of the refusal or failure."""
    latency: dict[str, float | None]
    """Under the names of `vllm bench serve`, in milliseconds; None without an observation."""
    reuse: Reuse
    token_hit_ratio: float
    block_hit_ratio: float
    moved_nbytes: dict[str, int]
    """K/V bytes between workers by what moved them."""
    workers: tuple[WorkerShare, ...]
    decisions: dict[str, int]
    counters: dict[str, int]
    virtual_s: float
    num_events: int
    attainment: Attainment | None = None
    warnings: tuple[str, ...] = ()
    """What the figures must not be read without."""


def failures_of(records: Sequence[RequestRecord]) -> dict[str, int]:
    """By code, in the order of their names."""
    codes = Counter(
        record.error.partition(":")[0]
        for record in records
        if record.outcome is not Outcome.COMPLETED
    )
    return dict(sorted(codes.items()))


def worker_shares(counts: ReplayCounts, num_blocks: dict[str, int]) -> tuple[WorkerShare, ...]:
    """Every worker, in start order."""
    return tuple(
        WorkerShare(
            worker_id=worker_id,
            num_blocks=num_blocks[worker_id],
            num_steps=counts.num_steps[worker_id],
            busy=counts.busy_us[worker_id] / counts.duration_us if counts.duration_us else 0.0,
        )
        for worker_id in counts.num_steps
    )
