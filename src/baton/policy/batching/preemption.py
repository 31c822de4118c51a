"""Who gives its K/V blocks back when decodes run short: recompute with fairness (0x08H)."""

from collections.abc import Sequence

import msgspec


class Preemptible(msgspec.Struct, frozen=True, kw_only=True):
    """A decoding sequence; `age_us` since it came to this worker."""

    key: str
    num_preemptions: int = 0
    age_us: int = 0


def choose_victim(
    running: Sequence[Preemptible], *, max_preemptions: int, age_override_us: int
) -> str:
    """The latest that is not protected; `running` is in order of service, and is not empty.

    Protected is who was preempted `max_preemptions` times (0: nobody), or is `age_override_us` old
    (0: nobody). The first is never chosen while there is another, so it always ends, and when
    everybody is protected the latest yields after all: somebody must.
    """
    assert running
    for candidate in reversed(running[1:]):
        capped = 0 < max_preemptions <= candidate.num_preemptions
        aged = 0 < age_override_us <= candidate.age_us
        if not (capped or aged):
            return candidate.key
    return running[-1].key
