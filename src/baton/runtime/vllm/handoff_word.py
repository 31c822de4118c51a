"""What connectors say of one handoff, folded to the events of its trace."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from baton.core.ids import Fence
from baton.core.messages import TraceMark
from baton.integrations.vllm.context import unreserved
from baton.integrations.vllm.messages import HandoffRecords
from baton.integrations.vllm.process import this_host
from baton.integrations.vllm.records import HandoffRecord
from baton.runtime.vllm.connector import HandoffWord


class Told(NamedTuple):
    """One rank's answer, and how far its clock is behind this host's."""

    answer: HandoffRecords
    offset_us: int
    is_here: bool
    """It is this host's clock: the offset is 0, and exactly so."""


def told_of(answer: HandoffRecords, asked_us: int, heard_us: int) -> Told:
    """Another host's clock is taken to have said its time halfway between question and answer."""
    if answer.host == this_host():
        return Told(answer, 0, True)
    return Told(answer, (asked_us + heard_us) // 2 - answer.now_us, False)


def fold_word(fence: Fence, ranks: Sequence[Told | None], answered_us: int) -> HandoffWord:
    """Of one handoff under exactly this fence: every leg of every rank, or a reason.

    A step is reached when its last leg has reached it, so the last publication counts; bytes,
    chunks and repeats are sums. `answered_us`, of this host, is when decode's first event came:
    times of another host are moved to this clock, and never past the answer they led to.
    """
    legs: list[HandoffRecord] = []
    for told in ranks:
        if told is None:
            return HandoffWord(missing="silent")
        mine = [one for one in told.answer.records if unreserved(one.fence) == fence]
        if not mine or len(mine) != mine[0].num_legs:
            return HandoffWord(missing="no_record")
        latest_us = None if told.is_here else answered_us
        legs += [_moved(one, told.offset_us, latest_us) for one in mine]
    failed = [leg for leg in legs if leg.reason]
    return _failed(legs, failed) if failed else _published(legs)


_TIMES = (
    "asked_us",
    "reserved_us",
    "claimed_us",
    "first_byte_us",
    "all_visible_us",
    "validated_us",
    "ended_us",
)


def _moved(leg: HandoffRecord, offset_us: int, latest_us: int | None) -> HandoffRecord:
    times = {}
    for name in _TIMES:
        at_us = getattr(leg, name)
        if at_us:
            moved_us = at_us + offset_us
            times[name] = moved_us if latest_us is None else min(moved_us, latest_us)
    return msgspec.structs.replace(leg, **times)


def _last(legs: Iterable[HandoffRecord], step: str) -> int:
    latest: int = max(getattr(leg, step) for leg in legs)
    return latest


def _sums(legs: Sequence[HandoffRecord], *names: str) -> dict[str, int | float | str]:
    sums = {name: sum(getattr(leg, name) for leg in legs) for name in names}
    return {name: total for name, total in sums.items() if total}


def _published(legs: Sequence[HandoffRecord]) -> HandoffWord:
    first, fence = legs[0], legs[0].fence
    steps = {name: _last(legs, name) for name in _TIMES}
    moving_us = steps["all_visible_us"] - min(
        leg.first_byte_us or leg.all_visible_us for leg in legs
    )
    data: dict[str, dict[str, int | float | str]] = {
        "reserved": {"visible_tokens": first.visible_tokens, "blocks": first.num_blocks},
        "authorized": {"duration_us": max(0, steps["claimed_us"] - steps["reserved_us"])},
        "all_visible": {"duration_us": moving_us},
        "validated": {},
        "published": {
            "num_tokens": first.num_tokens,
            "num_layers": max(leg.num_layers for leg in legs),
            "num_chunks": sum(leg.num_chunks for leg in legs),
            "num_legs": len(legs),
            "duration_us": steps["ended_us"] - steps["validated_us"],
            **_sums(legs, "logical_nbytes", "padding_nbytes", "duplicate_nbytes", "num_repeats"),
        },
    }
    at = {
        "reserved": "reserved_us",
        "authorized": "claimed_us",
        "all_visible": "all_visible_us",
        "validated": "validated_us",
        "published": "ended_us",
    }
    return HandoffWord(
        marks=tuple(
            _mark(fence, name, steps[at[name]], fields)
            for name, fields in data.items()
            if steps[at[name]]
        )
    )


def _failed(legs: Sequence[HandoffRecord], failed: Sequence[HandoffRecord]) -> HandoffWord:
    first = min(failed, key=lambda leg: leg.ended_us)
    data: dict[str, int | float | str] = {"reason": first.reason, "num_legs": len(legs)}
    moved = _sums(legs, "arrived_nbytes").get("arrived_nbytes")
    if moved:
        data["retried_nbytes"] = moved
    return HandoffWord(
        marks=(_mark(first.fence, "aborting", _last(legs, "ended_us"), data),),
        failed=first.reason,
    )


def _mark(fence: Fence, name: str, at_us: int, data: dict[str, int | float | str]) -> TraceMark:
    return TraceMark(at_us, name, fence.request_id, fence.generation, data)
