"""What the gateway in front of vLLM servers traces: to a file, and to what is kept in memory."""

from pathlib import Path

from baton.config import BatonConfig
from baton.core.effects import Trace
from baton.core.messages import Traced, TraceMark
from baton.nodes.context import ROUTER
from baton.runtime.clock import now_us
from baton.runtime.live_telemetry import LiveTelemetry
from baton.runtime.trace_log import TraceLog, make_trace_dir
from baton.telemetry.trace.vocabulary import TOLD


class Tracer:
    """One stream of events for `--trace-dir`, `/traces`, the page, spans and metrics."""

    def __init__(self, config: BatonConfig, trace_dir: Path | None = None) -> None:
        """Raises ConfigError for a folder or an endpoint that cannot be used."""
        if trace_dir is not None:
            make_trace_dir(trace_dir)
        self.live = LiveTelemetry(config)
        self.log = TraceLog(ROUTER, str(trace_dir / "router.jsonl") if trace_dir else "")
        self.log.started()
        self._trace_dir = trace_dir
        self._logs: dict[str, TraceLog] = {}
        """Of servers whose connectors have told of a handoff."""
        self.is_on = self.live.is_on or trace_dir is not None

    def say(self, trace: Trace) -> None:
        """Take one event of the gateway, now."""
        at_us = now_us()
        self.log.record(trace, at_us)
        self.live.record(trace, at_us)

    def hear(self, server_id: str, marks: tuple[TraceMark, ...]) -> None:
        """Take what a server's connector told of a handoff, its times already of this clock."""
        log = self._log_of(server_id)
        for mark in marks:
            data = {**mark.data, TOLD: 1}
            trace = Trace(
                name=mark.name, request_id=mark.request_id, generation=mark.generation, data=data
            )
            log.record(trace, mark.at_us)
        self.live.hear(server_id, 0, Traced(sent_us=now_us(), marks=marks))

    def _log_of(self, server_id: str) -> TraceLog:
        log = self._logs.get(server_id)
        if log is None:
            path = str(self._trace_dir / f"{server_id}.jsonl") if self._trace_dir else ""
            log = self._logs[server_id] = TraceLog(server_id, path)
            log.started()
        return log

    def close(self) -> None:
        """Say that nothing follows."""
        self.log.close()
        for log in self._logs.values():
            log.close()
        self.live.close()
