"""Everything that the trace says of one request, folded once."""

from collections.abc import Sequence
from typing import Any

import msgspec

from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.ledger import ByteLedger, fold_ledger
from baton.telemetry.trace.phases import Tiling, tile
from baton.telemetry.trace.vocabulary import BY_LEGS, OBSERVED, ROUTER_PLACE
from baton.telemetry.trace.work import Work, fold_work

OPEN = "open"


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One request, from its arrival to its end. Times are on the trace's clock."""

    request_id: str
    state: str
    """finished, failed, rejected, cancelled; or open, where the trace ends before it."""
    reason: str = ""
    """Why it was rejected, or why its last failed attempt failed."""
    tiling: Tiling | None = None
    work: Work = Work()
    ledger: ByteLedger
    mode: str = ""
    policy: str = ""
    route_reason: str = ""
    prefill: str = ""
    decode: str = ""
    observed: str = ""
    """How its servers were seen: "" every step; legs: when legs went out and were answered;
    handoff: that, and what a connector says of the handoff."""
    handoff_gap: str = ""
    """Of such a handoff, why its steps are not here: nobody told of it, or it failed."""
    num_tokens: int = 0
    """Prompt rows."""
    cached_tokens: int = 0
    """Of those, rows that the prefill worker had already."""
    visible_tokens: int = 0
    """Rows that the decode worker had already, which did not move."""
    num_output_tokens: int = 0
    num_attempts: int = 0
    failures: tuple[str, ...] = ()
    """Why each failed attempt failed, and what followed."""
    num_preemptions: int = 0
    first_token_us: int = 0
    """When the router had it; the client may have been given it after further ones were there."""
    ended_us: int = 0
    trace_id: str = ""
    ttft_slo_us: int = 0
    """The request's own target; 0 where it brought none."""
    tpot_slo_us: int = 0
    """The same for each further token."""
    client_request_id: str = ""
    """What the client calls it; in logs and here only."""

    @property
    def ttft_us(self) -> int:
        """Time to the first token; 0 for who never had one."""
        return self.tiling.total_us if self.tiling and self.tiling.is_answered else 0

    @property
    def is_whole(self) -> bool:
        """Its answer came in one piece from a server that does not say when tokens were there."""
        return bool(self.observed) and self.state == "finished" and not self.ttft_us

    @property
    def has_exposed(self) -> bool:
        """The exposed stall is known: it was handed over, and its publication was seen."""
        return self.mode == "disaggregated" and self.observed != BY_LEGS

    @property
    def total_us(self) -> int:
        """From arrival to the end; 0 while it is open."""
        return self.ended_us - self.tiling.start_us if self.tiling and self.ended_us else 0

    @property
    def tpot_us(self) -> float:
        """Mean time of each further token, both ends taken at the router; 0 where there is none."""
        if not self.ttft_us or not self.ended_us or self.num_output_tokens < 2:
            return 0.0
        return max(0, self.ended_us - self.first_token_us) / (self.num_output_tokens - 1)


def is_request(events: Sequence[TraceEvent]) -> bool:
    """True for a request; a copy of history has an id of its own, too."""
    return any(e.place == ROUTER_PLACE and e.name in ("arrived", "received") for e in events)


def tell(events: Sequence[TraceEvent]) -> Story:
    """The story of one request; `events` are all of its id, by time."""
    tiling = tile(events)
    generation = tiling.generation if tiling else max(event.generation for event in events)
    found: dict[str, Any] = {}
    failures: list[str] = []
    attempts: set[int] = set()
    num_preemptions = 0
    for event in events:
        if event.place == ROUTER_PLACE:
            _of_router(event, found)
        elif event.generation == generation:
            _of_worker(event, found)
        if event.name == "attempt_failed":
            failures.append(f"{event.text('reason')}, then {event.text('fallback')}")
        elif event.name == "routed":
            attempts.add(event.generation)
        num_preemptions += event.name == "preempted"
    if found.get("mode") != "disaggregated" and not found.get(
        "observed"
    ):  # what decode sees is what its prefill reuses
        found["cached_tokens"] = found.get("visible_tokens", 0)
    return Story(
        request_id=events[0].request_id,
        tiling=tiling,
        work=fold_work(events, generation),
        ledger=fold_ledger(events),
        failures=tuple(failures),
        num_attempts=len(attempts),
        num_preemptions=num_preemptions,
        **{"state": OPEN, **found},
    )


def _of_router(event: TraceEvent, found: dict[str, Any]) -> None:
    match event.name:
        case "received":
            found["trace_id"] = event.text("trace_id")
            found["client_request_id"] = event.text("client_request_id")
            found["ttft_slo_us"] = event.number("ttft_slo_us")
            found["tpot_slo_us"] = event.number("tpot_slo_us")
        case "arrived":
            found["num_tokens"] = event.number("num_tokens")
        case "routed":
            found["mode"] = event.text("mode")
            found["prefill"], found["decode"] = event.text("prefill"), event.text("decode")
            found["policy"], found["route_reason"] = event.text("policy"), event.text("reason")
            found["observed"] = event.text(OBSERVED)
        case "handoff_unseen":
            found["handoff_gap"] = f"its connector did not tell of it ({event.text('reason')})"
        case "prefill_answered":
            _of_usage(event, found)
        case "rejected" | "attempt_failed" | "cancel":
            found["reason"] = event.text("reason")
        case "first_token":
            found["first_token_us"] = event.at_us
        case "ended":
            found["state"], found["ended_us"] = event.text("state").lower(), event.at_us
            _of_usage(event, found)


def _of_usage(event: TraceEvent, found: dict[str, Any]) -> None:
    """What a server counted of the prompt is truer than the estimate it was routed by."""
    for field in ("num_tokens", "cached_tokens", "num_output_tokens"):
        if field in event.data:
            found[field] = event.number(field)


def _of_worker(event: TraceEvent, found: dict[str, Any]) -> None:
    match event.name:
        case "reserved":
            found["visible_tokens"] = event.number("visible_tokens")
        case "prefill_started" | "prefill_queued" if "cached_tokens" in event.data:
            found["cached_tokens"] = event.number("cached_tokens")
        case "published" if found.get("observed"):
            found["observed"] = "handoff"
        case "aborting" if found.get("observed"):
            found["handoff_gap"] = f"the handoff failed ({event.text('reason')})"
        case "finished":
            found["num_output_tokens"] = event.number("num_tokens")
