"""X1 and X2: what a burst of long prompts does to streams that are being read (papers B2)."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import msgspec
import numpy as np

from baton.bench.race.field import Lane
from baton.errors import BatonError
from baton.goodput.record import Outcome, RequestRecord
from baton.workload.request import Workload, WorkloadRequest

NUM_STREAMS = 3
STREAM_PROMPT = 32
BURST_PROMPTS = (512, 768, 1024, 640, 896)
_BURST_START_S = 2.0
_BURST_EVERY_S = 1.2


class StreamGaps(msgspec.Struct, frozen=True, kw_only=True):
    """Gaps between tokens of the live streams while prompts arrived, and TTFT of those prompts."""

    arm: str
    gaps_us: tuple[int, ...]
    burst_ttfts_us: tuple[int, ...]

    @property
    def p99_us(self) -> float:
        """99th percentile of the gaps."""
        return float(np.percentile(self.gaps_us, 99))

    @property
    def median_us(self) -> float:
        """Median gap."""
        return float(np.median(self.gaps_us))

    @property
    def mean_ttft_us(self) -> float:
        """Mean TTFT of the burst; nan without a burst."""
        return float(np.mean(self.burst_ttfts_us)) if self.burst_ttfts_us else float("nan")


def streams_workload(num_tokens: int, burst: Sequence[int]) -> Workload:
    """Streams from the start, long prompts of one output token from 2 s on."""
    live = [
        WorkloadRequest(
            arrival_us=10_000 * i, num_prompt_tokens=STREAM_PROMPT, num_output_tokens=num_tokens
        )
        for i in range(NUM_STREAMS)
    ]
    prompts = [
        WorkloadRequest(
            arrival_us=round(1e6 * (_BURST_START_S + i * _BURST_EVERY_S)),
            num_prompt_tokens=length,
            num_output_tokens=1,
        )
        for i, length in enumerate(burst)
    ]
    return Workload(name="streams", source="live streams under a burst", requests=(*live, *prompts))


async def measure_streams(
    lane: Lane, *, num_tokens: int, burst: Sequence[int] = BURST_PROMPTS, seed: int = 0
) -> StreamGaps:
    """Gaps from the first prompt's arrival until the last prompt has its token.

    Without a burst: over the same time. Raises BatonError when a request fails or a stream ends
    before the burst does, for then its gaps say less than they seem to.
    """
    workload = streams_workload(num_tokens, burst)
    records = await lane.run(workload, seed)
    await asyncio.sleep(0.3)
    failed = [record for record in records if record.outcome is not Outcome.COMPLETED]
    if failed:
        raise BatonError(f"arm {lane.arm.name}: a stream failed: {failed[0].error}")
    live = [record for record in records if record.num_output_tokens > 1]
    prompts = [record for record in records if record.num_output_tokens == 1]
    start_us = round(1e6 * _BURST_START_S)
    end_us = max((record.end_us for record in prompts), default=min(r.end_us for r in live))
    if min(record.end_us for record in live) < end_us:
        raise BatonError(
            f"arm {lane.arm.name}: a stream of {num_tokens} tokens ended before the burst did"
        )
    return StreamGaps(
        arm=lane.arm.name,
        gaps_us=tuple(gap for record in live for gap in _gaps_within(record, start_us, end_us)),
        burst_ttfts_us=tuple(r.ttft_us for r in prompts if r.ttft_us is not None),
    )


def _gaps_within(record: RequestRecord, start_us: int, end_us: int) -> list[int]:
    """Gaps that overlap the burst, the one in which it began included."""
    times = record.token_times_us
    return [b - a for a, b in pairwise(times) if b > start_us and a < end_us]


def medians(rounds: Sequence[StreamGaps]) -> tuple[float, float]:
    """Median over repetitions of the p99 gap and of the mean TTFT, in microseconds."""
    return median(r.p99_us for r in rounds), median(r.mean_ttft_us for r in rounds)
