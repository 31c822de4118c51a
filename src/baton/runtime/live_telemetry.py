"""The gateway's side of live traces: one stream of events, folded into history and metrics."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from baton.config import BatonConfig
from baton.core.effects import Trace
from baton.core.messages import Traced
from baton.errors import ConfigError
from baton.nodes.context import ROUTER
from baton.runtime.clock import now_us
from baton.telemetry.live.history import SETTLE_US, Recent, TraceHistory
from baton.telemetry.live.story_metrics import StoryMetrics
from baton.telemetry.trace.event import TraceEvent

if TYPE_CHECKING:
    from baton.runtime.otel import SpanExport

_SETTLE_S = SETTLE_US / 1e6 + 0.05
_SAME_HOST_US = 60_000_000
"""Clocks that differ by less are taken for one: another host was started at another time."""


class LiveTelemetry:
    """Takes events of gateway and router as they come, and those of workers as they are told."""

    def __init__(self, config: BatonConfig, clock: Callable[[], int] = now_us) -> None:
        self._now_us = clock
        self.is_on = config.telemetry.live
        self.history = TraceHistory(config.telemetry.history_requests, self._told)
        self.metrics = StoryMetrics(
            ttft_slo_us=config.router.ttft_slo_ms * 1000,
            tpot_slo_us=config.router.tpot_slo_ms * 1000,
        )
        self._offsets_us: dict[tuple[str, int], int] = {}
        self._heard_us: dict[str, int] = {}
        """Up to when each worker has told what it traced."""
        self._export = _open_export(config)
        self._timer: asyncio.TimerHandle | None = None
        if self._export is not None:
            self.metrics.span_counts = self._export.counts

    def _told(self, recent: Recent) -> None:
        self.metrics.tell(recent.story)
        if self._export is not None:
            self._export.export(recent)

    def close(self) -> None:
        """Tell of everybody who has ended, and send the last spans."""
        if self._timer is not None:
            self._timer.cancel()
        self.history.settle(self._now_us() + SETTLE_US)
        if self._export is not None:
            self._export.close()

    def record(self, trace: Trace, at_us: int) -> None:
        """Take one event of this process."""
        if self.is_on:
            self._take(
                TraceEvent(
                    at_us=at_us,
                    place=ROUTER,
                    name=trace.name,
                    request_id=trace.request_id,
                    generation=trace.generation,
                    data=trace.data,
                )
            )

    def hear(self, worker_id: str, epoch: int, message: Traced) -> None:
        """Take what a worker says, its times moved to this clock if its own is another."""
        if not self.is_on:
            return
        offset_us = self._offset_us((worker_id, epoch), self._now_us() - message.sent_us)
        self._heard_us[worker_id] = message.sent_us + offset_us
        for mark in message.marks:
            self._take(
                TraceEvent(
                    at_us=mark.at_us + offset_us,
                    place=worker_id,
                    name=mark.name,
                    request_id=mark.request_id,
                    generation=mark.generation,
                    data=mark.data,
                )
            )

    def lose(self, worker_id: str) -> None:
        """That worker's life is over: what it traced and had not sent is lost, and marked so."""
        if self.is_on:
            self.history.lose(worker_id, self._heard_us.pop(worker_id, 0), self._now_us())

    def _offset_us(self, life: tuple[str, int], delay_us: int) -> int:
        """The least delay seen bounds what one clock is ahead of the other."""
        least_us = min(delay_us, self._offsets_us.get(life, delay_us))
        self._offsets_us[life] = least_us
        return least_us if abs(least_us) > _SAME_HOST_US else 0

    def _take(self, event: TraceEvent) -> None:
        self.metrics.take(event)
        self.history.take(event, self._now_us())
        self.history.settle(self._now_us())
        if self._export is not None and self._timer is None and event.name == "ended":
            self._settle_later()

    def _settle_later(self) -> None:
        """Spans of the last request leave though nothing comes after it and nobody looks."""
        with contextlib.suppress(RuntimeError):  # no loop runs: who records settles, too
            self._timer = asyncio.get_running_loop().call_later(_SETTLE_S, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.history.settle(self._now_us())
        if self.history.num_ended:
            self._settle_later()

    def settled(self) -> "LiveTelemetry":
        """The same, with everybody told who has ended long enough ago."""
        self.history.settle(self._now_us())
        return self

    def lines(self) -> bytes:
        """The kept events as lines of a trace, for `baton trace URL`."""
        return msgspec.json.Encoder().encode_lines(self.settled().history.events())


def _open_export(config: BatonConfig) -> "SpanExport | None":
    """OpenTelemetry is imported by those alone who ask for it."""
    endpoint = config.telemetry.otlp_endpoint
    if not endpoint:
        return None
    if not config.telemetry.live:
        raise ConfigError(
            f"telemetry.otlp_endpoint is {endpoint} and telemetry.live is false: spans are made of "
            "live events; set telemetry.live=true, or leave the endpoint out"
        )
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"telemetry.otlp_endpoint is {endpoint!r}; write it like http://127.0.0.1:4318"
        )
    from baton.runtime.otel import SpanExport

    return SpanExport(endpoint, config.model.name)
