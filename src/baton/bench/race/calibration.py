"""What an idle split arm does with one request at a time: the scale of targets and rates."""

import msgspec

from baton.bench.race.contest import Contest
from baton.bench.race.field import Lane
from baton.errors import BatonError
from baton.goodput.record import Outcome
from baton.goodput.slo import SLOTargets

_NUM_REQUESTS = 6


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Means over lone requests of a contest on the idle split arm."""

    contest: str
    mean_ttft_us: float
    """About the service time of a prompt on half of the cores."""
    mean_tpot_us: float

    def targets(self, ttft_scale: float, tpot_scale: float, attainment: float) -> SLOTargets:
        """Targets as multiples of the unloaded clocks, as DistServe's SLO scale has them."""
        return SLOTargets(
            ttft_us=1000 * round(self.mean_ttft_us * ttft_scale / 1000),
            tpot_us=100 * round(self.mean_tpot_us * tpot_scale / 100),
            attainment=attainment,
        )

    def capacity(self, mean_output_tokens: float) -> float:
        """Requests a second that would keep the busier half of the split arm always busy.

        A decode step carries many requests, so the decode half counts a lone stream's steps at a
        batch of 4; the rates of a race are fractions of this.
        """
        decode_us = self.mean_tpot_us * mean_output_tokens / 4
        return 1e6 / max(self.mean_ttft_us, decode_us)


async def calibrate(lane: Lane, contest: Contest, seed: int) -> Calibration:
    """One request after another on an idle arm. Raises BatonError when one of them fails."""
    workload = contest.cell(float(_NUM_REQUESTS), 1.0, seed)
    ttfts_us: list[int] = []
    tpots_us: list[float] = []
    for request in workload.requests:
        alone = msgspec.structs.replace(
            workload, requests=(msgspec.structs.replace(request, arrival_us=0),)
        )
        (record,) = await lane.run(alone, seed + len(ttfts_us))
        if record.outcome is not Outcome.COMPLETED or record.ttft_us is None:
            raise BatonError(f"arm {lane.arm.name} failed a lone request: {record.error}")
        ttfts_us.append(record.ttft_us)
        if record.tpot_us is not None:
            tpots_us.append(record.tpot_us)
    return Calibration(
        contest=contest.name,
        mean_ttft_us=sum(ttfts_us) / len(ttfts_us),
        mean_tpot_us=sum(tpots_us) / max(1, len(tpots_us)),
    )
