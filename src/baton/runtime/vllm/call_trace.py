"""The trace events of one output: its arrival, each attempt's legs, its first token, its end."""

from collections.abc import Mapping
from typing import Any

import msgspec

from baton.core.effects import Trace
from baton.errors import RequestRejected
from baton.runtime.gateway.trace_context import TraceContext, traceparent
from baton.runtime.vllm.router import Route
from baton.runtime.vllm.tracer import Tracer
from baton.telemetry.live.spans import leg_span_id, trace_id_of
from baton.telemetry.trace.vocabulary import BY_LEGS, OBSERVED

Data = dict[str, int | float | str]


class CallTrace:
    """Says what happens to one output, once each; without a tracer it says nothing."""

    def __init__(
        self,
        request_id: str,
        tracer: Tracer | None = None,
        context: TraceContext | None = None,
        trace_state: str = "",
    ) -> None:
        self.is_on = tracer is not None and tracer.is_on
        self._request_id = request_id
        self._tracer = tracer
        self._context = context or TraceContext()
        self._trace_state = trace_state
        self._has_arrived = self._has_ended = self._is_routed = self._is_written = False

    def _say(self, name: str, generation: int = 0, data: Data | None = None) -> None:
        if self.is_on and self._tracer is not None:
            self._tracer.say(
                Trace(
                    name=name,
                    request_id=self._request_id,
                    generation=generation,
                    data=data or {},
                )
            )

    def received(self, waited_us: int, operation: str, client_request_id: str) -> None:
        """The HTTP request was read so long ago."""
        data: Data = {"waited_us": max(0, waited_us), "operation": operation}
        if self._context.trace_id:
            data["trace_id"] = self._context.trace_id
            data["parent_span_id"] = self._context.parent_span_id
        if client_request_id:
            data["client_request_id"] = client_request_id
        self._say("received", 0, data)

    def arrived(self, num_tokens: int) -> None:
        """The router has it; tokens of the prompt are an estimate where they were not counted."""
        if not self._has_arrived:
            self._has_arrived = True
            self._say("arrived", 0, {"num_tokens": num_tokens})

    def routed(self, generation: int, route: Route, policy: str) -> None:
        """An attempt begins."""
        self._is_routed = True
        prefill = route.prefill or route.decode
        data: Data = {
            "mode": str(route.mode),
            "prefill": prefill.server_id,
            "decode": route.decode.server_id,
            "policy": policy,
            "reason": route.reason,
            OBSERVED: BY_LEGS,
        }
        self._say("routed", generation, data)

    def leg_sent(self, generation: int, leg: str, server: str) -> None:
        """A request goes out to a server."""
        self._say("leg_sent", generation, {"leg": leg, "server": server})

    def leg_headers(self, generation: int, leg: str, server: str) -> Mapping[str, str]:
        """W3C trace context for a server, whose spans then belong below this leg's."""
        if not self.is_on:
            return {}
        context = self._context
        trace_id = int(context.trace_id, 16) if context.trace_id else trace_id_of(self._request_id)
        span_id = leg_span_id(self._request_id, generation, server, leg)
        headers = {"traceparent": traceparent(trace_id, span_id).decode()}
        if context.trace_id and self._trace_state:
            headers["tracestate"] = self._trace_state
        return headers

    def prefill_answered(self, generation: int, server: str, usage: Mapping[str, Any]) -> None:
        """The prompt is computed, and the first answer says of how many tokens."""
        self._say("prefill_answered", generation, {"server": server, **_prompt_counts(usage)})

    def decode_answered(self, generation: int, server: str, is_whole: bool) -> None:
        """The first event of the answer is here; a whole one tells nothing of its first token."""
        data: Data = {"server": server, "whole": 1} if is_whole else {"server": server}
        self._say("decode_answered", generation, data)
        if not is_whole:
            self._say("first_token", generation)

    def first_written(self) -> None:
        """The first event is in the client's connection."""
        if not self._is_written:
            self._is_written = True
            self._say("first_written")

    def attempt_failed(self, generation: int, reason: str, fallback: str) -> None:
        """An attempt is over, and what follows."""
        self._say("attempt_failed", generation, {"reason": reason, "fallback": fallback})

    def refused(self, error: RequestRejected) -> None:
        """The client gets an error: before any leg, for its own request's sake, or after all."""
        if not self._is_routed:
            self._say("rejected", 0, {"code": error.code or "", "reason": error.message})
        is_own = error.status < 500 and error.status != 429
        state = "INVALID" if is_own else "FAILED" if self._is_routed else "REJECTED"
        self._end({"state": state})

    def finished(self, usage: Mapping[str, Any]) -> None:
        """The answer is complete."""
        data: Data = {"state": "FINISHED", **_prompt_counts(usage)}
        completion = usage.get("completion_tokens")
        if isinstance(completion, int):
            data["num_output_tokens"] = completion
        self._end(data)

    def left(self, reason: str) -> None:
        """Whatever was not over is given up."""
        if self._has_arrived and not self._has_ended:
            self._say("cancel", 0, {"reason": reason})
            self._end({"state": "CANCELLED"})

    def _end(self, data: Data) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._say("ended", 0, data)


def usage_of(data: bytes) -> dict[str, Any]:
    """The usage in a body or an event of an answer; {} where it has none."""
    try:
        tree = msgspec.json.decode(data.removeprefix(b"data: "))
    except (msgspec.DecodeError, RecursionError):
        return {}
    usage = tree.get("usage") if isinstance(tree, dict) else None
    return usage if isinstance(usage, dict) else {}


def _prompt_counts(usage: Mapping[str, Any]) -> Data:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    counts = {"num_tokens": usage.get("prompt_tokens"), "cached_tokens": cached}
    return {name: count for name, count in counts.items() if isinstance(count, int)}
