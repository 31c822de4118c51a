"""What follows a failed attempt, in the order of specification 0x10."""

from enum import StrEnum


class Fallback(StrEnum):
    """Waiting within the budget happens inside an attempt, by its leases and deadline."""

    REROUTE = "reroute"
    RECOMPUTE = "recompute"
    FAIL = "fail"


def next_fallback(
    *, attempt: int, max_attempts: int, budget_left: bool, other_source: bool
) -> Fallback:
    """Reroute while another source exists and attempts remain, else recompute, then fail.

    `attempt` is the one that failed, counted from 1. The last attempt is always a recompute on the
    decode worker: it needs no peer and no network.
    """
    if attempt >= max_attempts or not budget_left:
        return Fallback.FAIL
    if other_source and attempt + 1 < max_attempts:
        return Fallback.REROUTE
    return Fallback.RECOMPUTE
