"""What the gateway in front of vLLM counts beyond every gateway's own families."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from baton.runtime.gateway.metrics import Histogram
from baton.runtime.vllm.servers import Server, ServerTable

_PHASE_BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
PHASES = ("route", "prefill", "handoff", "decode")
"""Route, the prefill leg, from there to the first event of the answer, and the rest of it."""


_Reads = Callable[[Server], float]
_GAUGES: tuple[tuple[str, str, _Reads], ...] = (
    ("up", "1 while the server answers.", lambda server: server.is_up),
    ("epoch", "Lives of the server.", lambda server: server.epoch),
    ("running", "Requests it runs, by its own word.", lambda server: server.load.running),
    ("waiting", "Requests it queues, by its own word.", lambda server: server.load.waiting),
    ("kv_usage", "Share of its K/V blocks taken.", lambda server: server.load.kv_usage),
    ("pending_tokens", "Prompt tokens sent and not computed.", lambda s: s.pending_tokens),
    ("active", "Answers under way here.", lambda server: server.active),
)


class VllmMetrics:
    """Counters of one gateway, and the collector that shows them with its servers."""

    def __init__(self, servers: ServerTable, handoffs: Mapping[str, int]) -> None:
        self._servers = servers
        self._handoffs = handoffs
        self.outputs: Counter[tuple[str, str]] = Counter()
        """Outputs by mode and reason."""
        self.legs: Counter[tuple[str, str]] = Counter()
        """Legs by kind and how they ended."""
        self.fallbacks: Counter[str] = Counter()
        """What followed attempts that failed."""
        self.releases: Counter[str] = Counter()
        self.phases = {name: Histogram(_PHASE_BUCKETS) for name in PHASES}
        self.events: Counter[tuple[str, str]] = Counter()
        """K/V events by server and kind, gaps and replays among them."""
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def observe(self, phases_s: dict[str, float]) -> None:
        """The phases of one output."""
        for name, seconds in phases_s.items():
            if name in self.phases:
                self.phases[name].observe(seconds)

    def render(self) -> bytes:
        """The Prometheus text."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All families; called by the registry at each scrape."""
        yield _counted("outputs", "Outputs by mode and why.", ("mode", "reason"), self.outputs)
        yield _counted("legs", "Legs by how they ended.", ("leg", "outcome"), self.legs)
        fallbacks = {(kind,): count for kind, count in self.fallbacks.items()}
        yield _counted("fallbacks", "What followed failed attempts.", ("kind",), fallbacks)
        releases = {(outcome,): count for outcome, count in self.releases.items()}
        yield _counted("releases", "Handles given back unread.", ("outcome",), releases)
        words = {(outcome,): count for outcome, count in self._handoffs.items()}
        text = "Handoffs that a connector was asked about, by what it said."
        yield _counted("handoff_records", text, ("outcome",), words)
        yield _counted("kv_events", "K/V events read.", ("server", "kind"), self.events)
        family = HistogramMetricFamily(
            "baton_vllm_phase_seconds", "Phases of an output.", labels=["phase"]
        )
        for name, histogram in self.phases.items():
            for sample in histogram.family(family.name, "", (["phase"], [name])).samples:
                family.samples.append(sample)
        yield family
        yield from self._gauges()

    def _gauges(self) -> Iterator[Metric]:
        for name, text, value in _GAUGES:
            gauge = GaugeMetricFamily(f"baton_vllm_server_{name}", text, labels=["server", "role"])
            for server in self._servers:
                gauge.add_metric([server.server_id, server.role], value(server))
            yield gauge


def _counted(name: str, text: str, labels: tuple[str, ...], counts: Mapping[Any, int]) -> Metric:
    family = CounterMetricFamily(f"baton_vllm_{name}", text, labels=list(labels))
    for values, count in counts.items():
        family.add_metric(list(values), count)
    return family
