"""X1 and X2: what a burst of long prompts does to streams that are being read (papers B2)."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from baton.bench.race.field import Lane
from baton.errors import BatonError
from baton.goodput.record import Outcome, RequestRecord
from baton.workload.request import Workload, WorkloadRequest

NUM_STREAMS = 3
STREAM_PROMPT = 32
BURST_PROMPTS = (512, 1024, 768, 640)
_BURST_START_US = 2_000_000
_BURST_EVERY_US = 1_200_000
_SETTLE_S = 0.3


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
            arrival_us=_BURST_START_US + i * _BURST_EVERY_US,
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

    The streams are interrupted then; without a burst they run for all their tokens. Raises
    BatonError when a request fails, or when the streams ended before the burst began.
    """
    workload = streams_workload(num_tokens, burst)
    records = await lane.run(workload, seed, enough=len(burst) or None)
    await asyncio.sleep(_SETTLE_S)
    failed = [record for record in records if record.outcome is Outcome.FAILED]
    if failed:
        raise BatonError(f"arm {lane.arm.name}: a request failed: {failed[0].error}")
    live = [record for record in records if record.scheduled_us < _BURST_START_US]
    prompts = [record for record in records if record.scheduled_us >= _BURST_START_US]
    ends = [record.end_us for record in (prompts or live)]
    end_us = max(ends) if prompts else min(ends)
    gaps = [gap for record in live for gap in _gaps_within(record, _BURST_START_US, end_us)]
    if not gaps or any(record.ttft_us is None for record in prompts):
        raise BatonError(
            f"arm {lane.arm.name}: the streams of {num_tokens} tokens ended before the burst began"
        )
    return StreamGaps(
        arm=lane.arm.name,
        gaps_us=tuple(gaps),
        burst_ttfts_us=tuple(r.ttft_us for r in prompts if r.ttft_us is not None),
    )


def _gaps_within(record: RequestRecord, start_us: int, end_us: int) -> list[int]:
    """Gaps that overlap the burst, the one in which it began included."""
    times = record.token_times_us
    return [b - a for a, b in pairwise(times) if b > start_us and a < end_us]
