"""What the gateway in front of vLLM servers traces: to a file, and to what is kept in memory."""

from pathlib import Path

from baton.config import BatonConfig
from baton.core.effects import Trace
from baton.nodes.context import ROUTER
from baton.runtime.clock import now_us
from baton.runtime.live_telemetry import LiveTelemetry
from baton.runtime.trace_log import TraceLog


class Tracer:
    """One stream of events for `--trace-dir`, `/traces`, the page, spans and metrics."""

    def __init__(self, config: BatonConfig, trace_dir: Path | None = None) -> None:
        """Raises ConfigError for a folder or an endpoint that cannot be used."""
        if trace_dir is not None:
            trace_dir.mkdir(parents=True, exist_ok=True)
        self.live = LiveTelemetry(config)
        self.log = TraceLog(ROUTER, str(trace_dir / "router.jsonl") if trace_dir else "")
        self.log.started()
        self.is_on = self.live.is_on or trace_dir is not None

    def say(self, trace: Trace) -> None:
        """Take one event of the gateway, now."""
        at_us = now_us()
        self.log.record(trace, at_us)
        self.live.record(trace, at_us)

    def close(self) -> None:
        """Say that nothing follows."""
        self.log.close()
        self.live.close()
