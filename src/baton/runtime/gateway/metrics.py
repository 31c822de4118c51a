"""What the gateway counts, under Baton's names and under the names dashboards for vLLM expect.

One event loop does all counting, so there are no locks; families are built when scraped.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from baton.runtime.gateway.choice import UsageTotal

_TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
)  # fmt: skip
_ITL_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 10.0,
)  # fmt: skip
_E2E_BUCKETS = (
    0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0,
    60.0, 120.0, 240.0, 480.0,
)  # fmt: skip
_TOKEN_BUCKETS = tuple(float(1 << exponent) for exponent in range(0, 18))


class Histogram:
    """Cumulative buckets; one observation is a bisection and two additions."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, text: str, labels: tuple[list[str], list[str]]) -> Metric:
        """This histogram as a Prometheus family."""
        family = HistogramMetricFamily(name, text, labels=labels[0])
        cumulative, buckets = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            cumulative += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(cumulative)))
        family.add_metric(labels[1], buckets, self._sum)
        return family


class GatewayMetrics:
    """Counters of one gateway, and the collector that shows them."""

    def __init__(self, model_name: str) -> None:
        self._labels = (["model_name"], [model_name])
        self.time_to_first_token = Histogram(_TTFT_BUCKETS)
        self.inter_token_latency = Histogram(_ITL_BUCKETS)
        self.time_per_output_token = Histogram(_ITL_BUCKETS)
        self.e2e_latency = Histogram(_E2E_BUCKETS)
        self.prompt_tokens_per_request = Histogram(_TOKEN_BUCKETS)
        self.generation_tokens_per_request = Histogram(_TOKEN_BUCKETS)
        self.num_running = 0
        self.num_waiting = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.modes: Counter[str] = Counter()
        self.disconnects: Counter[str] = Counter()
        self.responses: Counter[tuple[str, str]] = Counter()
        self.steering_dropped: Counter[str] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def count_request(self, usage: UsageTotal, seconds: float) -> None:
        """Count one HTTP request that succeeded."""
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.prompt_tokens_per_request.observe(usage.prompt_tokens)
        self.generation_tokens_per_request.observe(usage.completion_tokens)
        self.e2e_latency.observe(seconds)

    def render(self) -> bytes:
        """The Prometheus text."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All families; called by the registry at each scrape."""
        yield from self._shared("baton_")
        yield from self._shared("vllm:")
        for name, text, label, counts in (
            ("requests_by_mode", "Outputs by the mode they ran in.", "mode", self.modes),
            ("client_gone", "Requests given up by the gateway.", "reason", self.disconnects),
            ("steering_fields_dropped", "Client fields that try to steer transfers.", "field",
             self.steering_dropped),
        ):  # fmt: skip
            yield self._counter(f"baton_{name}", text, label, counts)
        family = CounterMetricFamily(
            "baton_http_responses", "Responses by path and status.", labels=["path", "status"]
        )
        for (path, status), count in self.responses.items():
            family.add_metric([path, status], count)
        yield family
        cached = CounterMetricFamily(
            "baton_prompt_tokens_cached", "Prompt tokens reused.", labels=self._labels[0]
        )
        cached.add_metric(self._labels[1], self.cached_tokens)
        yield cached

    def _shared(self, prefix: str) -> Iterator[Metric]:
        """Families that exist under both names, with the same values."""
        for name, text, histogram in (
            ("time_to_first_token_seconds", "Arrival to first token.", self.time_to_first_token),
            ("inter_token_latency_seconds", "Between deliveries.", self.inter_token_latency),
            ("time_per_output_token_seconds", "Mean after the first token, per output.",
             self.time_per_output_token),
            ("e2e_request_latency_seconds", "Arrival to end.", self.e2e_latency),
            ("request_prompt_tokens", "Prompt tokens per request.",
             self.prompt_tokens_per_request),
            ("request_generation_tokens", "Generated tokens per request.",
             self.generation_tokens_per_request),
        ):  # fmt: skip
            yield histogram.family(prefix + name, text, self._labels)
        for name, text, number in (
            ("num_requests_running", "Outputs being generated.", self.num_running),
            ("num_requests_waiting", "Outputs before their first token.", self.num_waiting),
        ):
            gauge = GaugeMetricFamily(prefix + name, text, labels=self._labels[0])
            gauge.add_metric(self._labels[1], number)
            yield gauge
        for name, text, number in (
            ("prompt_tokens", "Prompt tokens of finished requests.", self.prompt_tokens),
            ("generation_tokens", "Tokens delivered.", self.generation_tokens),
            ("prefix_cache_queries", "Prompt tokens looked for.", self.prompt_tokens),
            ("prefix_cache_hits", "Prompt tokens that the source reused.", self.cached_tokens),
        ):
            counter = CounterMetricFamily(prefix + name, text, labels=self._labels[0])
            counter.add_metric(self._labels[1], number)
            yield counter
        yield self._counter(
            prefix + "request_success", "Finished outputs.", "finished_reason", self.finished
        )

    def _counter(self, name: str, text: str, label: str, counts: Counter[str]) -> Metric:
        family = CounterMetricFamily(name, text, labels=[*self._labels[0], label])
        for value, count in counts.items():
            family.add_metric([*self._labels[1], value], count)
        return family
