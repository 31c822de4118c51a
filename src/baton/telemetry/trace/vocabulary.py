"""The vocabulary of trace events: who says which, and with which fields."""

from enum import StrEnum

import msgspec

Number = (int, float)
Field = type | tuple[type, ...]


class Origin(StrEnum):
    """Who emits an event. Gateway and router share one process and one file."""

    GATEWAY = "gateway"
    ROUTER = "router"
    WORKER = "worker"
    HOST = "host"
    """Every process, of itself."""


class EventKind(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the vocabulary."""

    name: str
    origin: Origin
    fields: dict[str, Field] = {}
    """What it must carry; it may carry more."""
    is_detail: bool = False
    """One for every layer or chunk: written to files, not kept in memory by the gateway."""


def _kinds(origin: Origin, is_detail: bool = False, **fields: dict[str, Field]) -> list[EventKind]:
    return [
        EventKind(name=name, origin=origin, fields=needed, is_detail=is_detail)
        for name, needed in fields.items()
    ]


_REASON: dict[str, Field] = {"reason": str}
_ROWS: dict[str, Field] = {"num_tokens": int}
_NONE: dict[str, Field] = {}

_ALL = (
    *_kinds(
        Origin.HOST,
        process_started={"unix_us": int, "host": str},
        process_stopped={"num_dropped": int},
    ),
    *_kinds(
        Origin.GATEWAY,
        received={"waited_us": int},
        first_written=_NONE,
        answered={"status": int},
        leg_sent={"leg": str, "server": str},
        prefill_answered={"server": str},
        decode_answered={"server": str},
        handoff_unseen=_REASON,
    ),
    *_kinds(
        Origin.ROUTER,
        arrived=_ROWS,
        rejected={"code": str, "reason": str},
        fetching={"owner": str, "to": str},
        routed={"mode": str, "prefill": str, "decode": str},
        published=_NONE,
        first_token=_NONE,
        attempt_failed={"reason": str, "fallback": str},
        cancel=_REASON,
        ended={"state": str},
        return_priced=_NONE,
        copy_started={"motive": str, "source": str, "destination": str},
        copy_ended={"motive": str, "state": str},
        routes_revoked=_REASON,
        cache_cleared=_NONE,
        events_lost={"worker": str},
    ),
    *_kinds(
        Origin.WORKER,
        reserved={"visible_tokens": int, "blocks": int},
        access_granted=_NONE,
        authorized=_NONE,
        prefill_queued=_ROWS,
        prefill_started={"cached_tokens": int},
        prefill_running={"num_rows": int},
        last_layer_ready=_NONE,
        prefill_done=_ROWS,
        sealed=_NONE,
        all_visible=_NONE,
        validated=_NONE,
        published={"num_tokens": int, "num_chunks": int, "num_layers": int},
        admitted=_ROWS,
        finished={"reason": str, "num_tokens": int},
        preempted=_ROWS,
        inserted=_ROWS,
        copy_opened=_ROWS,
        tier_load={"num_blocks": int},
        tier_loaded={"num_blocks": int},
        source_released=_NONE,
        source_aborting=_REASON,
        aborting=_REASON,
        aborted=_REASON,
    ),
    *_kinds(
        Origin.WORKER,
        is_detail=True,
        layer_ready={"layer": int},
        chunk_moved={"chunk_id": int, "nbytes": int, "duration_us": int},
        chunk_arrived={"chunk_id": int},
        chunk_visible={"chunk_id": int, "layer_start": int, "num_layers": int, "nbytes": int},
    ),
)
ROUTER_PLACE = "router"
"""The process of gateway and router; every other place is a worker's."""
VOCABULARY: dict[tuple[bool, str], EventKind] = {
    (is_router, kind.name): kind
    for kind in _ALL
    for is_router in (True, False)
    if kind.origin is Origin.HOST or is_router == (kind.origin is not Origin.WORKER)
}
"""By whether the router's process says it, and its name: `published` has two meanings."""
DETAILS = frozenset(kind.name for kind in _ALL if kind.is_detail)
NAMES = frozenset(kind.name for kind in _ALL)
OBSERVED, BY_LEGS = "observed", "legs"
"""A `routed` that says `observed=legs` speaks of servers that tell nothing of their steps: the
gateway sees when each leg went out and was answered, and claims no more."""
EVENTS_LOST = "events_lost"
"""The gateway's word, of a request in its memory, that a worker died before it had told all of it:
steps of that worker may be absent, up to that generation. Files of dead workers are whole."""
LEG_STEPS = frozenset(("leg_sent", "prefill_answered", "decode_answered", "handoff_unseen"))
TOLD = "told"
"""An event with this field was told afterwards: it stands in its file by when, not by its time."""
CONNECTOR_STEPS = frozenset(
    ("reserved", "authorized", "all_visible", "validated", "published", "aborting")
)
"""What a connector may say of a handoff between such servers."""


def kind_of(place: str, name: str) -> EventKind | None:
    """The row of an event, or None for one that nobody at that place says."""
    return VOCABULARY.get((place == ROUTER_PLACE, name))


def field_defect(kind: EventKind, data: dict[str, int | float | str]) -> str:
    """Which field of an event is missing or of another type, or ""."""
    for field, wanted in kind.fields.items():
        if field not in data:
            return f"has no {field}"
        if not isinstance(data[field], wanted):
            return f"has {field} {data[field]!r}, which is no {_named(wanted)}"
    return ""


def _named(wanted: Field) -> str:
    one = wanted[0] if isinstance(wanted, tuple) else wanted
    return {"int": "whole number", "str": "text"}.get(one.__name__, one.__name__)
