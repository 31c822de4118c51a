"""How fast attainment falls with the rate, from the simulations of a search."""

import math
from collections.abc import Sequence

from baton.planner.goodput.answer import Contract, Probe

NEAR = 1.5
"""Factor around the answer within which a probe says something about the slope there."""


def slope_of(probes: Sequence[Probe], contract: Contract, rate_per_s: float) -> float:
    """Fall of the share for each unit of the logarithm of the rate: least squares near a rate.

    Each seed and each length of runs has its own level, so a shift between them is no slope. 0 when
    it cannot be told.
    """
    near = [
        one for one in probes if 1 / NEAR <= one.rate_per_s / rate_per_s <= NEAR and not one.is_cut
    ]
    above = below = 0.0
    for key in sorted({(one.seed, one.num_requests) for one in near}):
        own = [one for one in near if (one.seed, one.num_requests) == key]
        logs = [math.log(one.rate_per_s) for one in own]
        shares = [contract.share(one.attained) for one in own]
        log_mean, share_mean = math.fsum(logs) / len(own), math.fsum(shares) / len(own)
        above += math.fsum(
            (log - log_mean) * (share - share_mean) for log, share in zip(logs, shares, strict=True)
        )
        below += math.fsum((log - log_mean) ** 2 for log in logs)
    return max(0.0, -above / below) if below > 0 else 0.0
