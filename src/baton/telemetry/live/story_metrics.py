"""Counts and histograms of stories: phases, exposed stall, attainment, decisions, ends."""

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from baton.telemetry.families import TextHistogram, write_family
from baton.telemetry.live.cells import cell_of
from baton.telemetry.live.drain import DrainClock
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.phases import PHASES, Phase
from baton.telemetry.trace.story import Story
from baton.telemetry.trace.vocabulary import ROUTER_PLACE

_BUCKETS_S = (
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
)  # fmt: skip
_MAX_LABELS = 64
"""Different values of one label; all further ones are counted as `other`."""
_OTHER = "other"
_CLOCKS = ("ttft", "tpot", "joint")


Key = TypeVar("Key", str, tuple[str, str])


class StoryMetrics:
    """Takes events and stories; renders them as Prometheus text."""

    def __init__(self, *, ttft_slo_us: int = 0, tpot_slo_us: int = 0) -> None:
        self._ttft_slo_us = ttft_slo_us
        self._tpot_slo_us = tpot_slo_us
        self._phases = {phase: TextHistogram(_BUCKETS_S) for phase in PHASES}
        self._exposed = TextHistogram(_BUCKETS_S)
        self._judged: Counter[str] = Counter()
        self._met: Counter[tuple[str, str]] = Counter()
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._rejections: Counter[str] = Counter()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._bound: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()
        self.drain = DrainClock()
        self.span_counts: Callable[[], dict[str, int]] | None = None
        """Spans that left by OTLP, by outcome; None without an endpoint."""

    # -- count ---------------------------------------------------------------------------------

    def take(self, event: TraceEvent) -> None:
        """Count what is known at once."""
        self.drain.take(event)
        if event.place != ROUTER_PLACE:
            return
        match event.name:
            case "routed":
                key = (event.text("policy"), event.text("reason"))
                _count(self._decisions, key, (_OTHER, _OTHER))
            case "rejected":
                _count(self._rejections, event.text("code"), _OTHER)
            case "attempt_failed":
                reason = event.text("reason").partition(":")[0]
                key = (reason, event.text("fallback"))
                _count(self._failures, key, (_OTHER, _OTHER))
            case "ended":
                self._ends[event.text("state").lower()] += 1

    def tell(self, story: Story) -> None:
        """Count what is known only of a whole request."""
        if story.tiling is not None and story.ttft_us:
            for phase, duration_us in zip(PHASES, story.tiling.durations_us, strict=True):
                self._phases[phase].observe(duration_us / 1e6)
            self._bound[str(max(PHASES, key=story.tiling.of))] += 1
            if story.has_exposed:
                self._exposed.observe(story.work.exposed_us / 1e6)
        self._judge(story)

    def _judge(self, story: Story) -> None:
        """Who gave up by itself is not judged; who failed or was refused has missed.

        A request's own targets count before those of the deployment. An answer of which nobody saw
        the first token has no clock to be judged by, and whose request was invalid has none, too.
        """
        ttft_slo_us = story.ttft_slo_us or self._ttft_slo_us
        tpot_slo_us = story.tpot_slo_us or self._tpot_slo_us
        if story.state in ("cancelled", "invalid") or not (ttft_slo_us or tpot_slo_us):
            return
        if story.is_whole:
            return
        cell = cell_of(story)
        self._judged[cell] += 1
        answered = story.state == "finished"
        ttft = answered and (not ttft_slo_us or story.ttft_us <= ttft_slo_us)
        tpot = answered and (not tpot_slo_us or story.tpot_us <= tpot_slo_us)
        for clock, is_met in zip(_CLOCKS, (ttft, tpot, ttft and tpot), strict=True):
            self._met[cell, clock] += is_met

    @property
    def targets_us(self) -> tuple[int, int]:
        """The targets of both clocks; 0 is none."""
        return self._ttft_slo_us, self._tpot_slo_us

    # -- show ----------------------------------------------------------------------------------

    def attainment(self) -> dict[str, dict[str, float]]:
        """Of each cell: how many were judged, and which share met each clock."""
        return {
            cell: {"num": num, **{c: self._met[cell, c] / num for c in _CLOCKS}}
            for cell, num in self._judged.items()
        }

    def render(self) -> bytes:
        """All families in the text exposition format."""
        lines: list[str] = []
        self._write_durations(lines)
        self._write_attainment(lines)
        self._write_outcomes(lines)
        self._write_spans(lines)
        return ("\n".join(lines) + "\n").encode()

    def _write_durations(self, lines: list[str]) -> None:
        name = "baton_request_phase_seconds"
        write_family(lines, name, "histogram", "Phases of the time to the first token.", ())
        for phase in Phase:
            self._phases[phase].write(lines, name, {"phase": str(phase)})
        name = "baton_kv_exposed_transfer_seconds"
        text = "From when decode was ready until its K/V was published."
        write_family(lines, name, "histogram", text, ())
        self._exposed.write(lines, name, {})

    def _write_attainment(self, lines: list[str]) -> None:
        judged = [({"cell": cell}, float(num)) for cell, num in sorted(self._judged.items())]
        text = "Requests that were judged by the targets, by workload cell."
        write_family(lines, "baton_slo_requests_total", "counter", text, judged)
        met = [
            ({"cell": cell, "clock": clock}, float(self._met[cell, clock]))
            for cell in sorted(self._judged)
            for clock in _CLOCKS
        ]
        text = "Of those, requests that met a clock, or both."
        write_family(lines, "baton_slo_met_total", "counter", text, met)
        targets = (("ttft", self._ttft_slo_us), ("tpot", self._tpot_slo_us))
        samples = [({"clock": clock}, us / 1e6) for clock, us in targets if us]
        write_family(lines, "baton_slo_target_seconds", "gauge", "The targets.", samples)

    def _write_outcomes(self, lines: list[str]) -> None:
        for name, text, labels, counts in (
            ("route_decisions", "Routes chosen, by why.", ("policy", "reason"), self._decisions),
            ("failed_attempts", "Attempts that failed, by why, and what followed.",
             ("reason", "fallback"), self._failures),
        ):  # fmt: skip
            pairs = [
                (dict(zip(labels, key, strict=True)), float(num))
                for key, num in sorted(counts.items())
            ]
            write_family(lines, f"baton_{name}_total", "counter", text, pairs)
        for name, text, label, single in (
            ("rejections", "Requests refused before compute, by why.", "code", self._rejections),
            ("requests_ended", "Requests by how they ended.", "state", self._ends),
            ("requests_bound_by", "Requests by the phase that took most of their TTFT.", "phase",
             self._bound),
        ):  # fmt: skip
            ones = [({label: key}, float(num)) for key, num in sorted(single.items())]
            write_family(lines, f"baton_{name}_total", "counter", text, ones)
        drain = self.drain
        for name, kind, text, value in (
            ("drain_depth", "gauge", "Attempts of revoked routes under way.", drain.depth),
            ("rollbacks_total", "counter", "Revocations that drained.", drain.num_rollbacks),
            ("rollback_seconds_total", "counter", "Sum of their durations.",
             drain.rollback_us / 1e6),
        ):  # fmt: skip
            write_family(lines, f"baton_{name}", kind, text, [({}, float(value))])

    def _write_spans(self, lines: list[str]) -> None:
        counts = self.span_counts() if self.span_counts is not None else {}
        ones = [({"outcome": key}, float(num)) for key, num in counts.items()]
        text = "Spans that the collector took, and that were lost."
        write_family(lines, "baton_otlp_spans_total", "counter", text, ones)


def _count(counter: Counter[Key], key: Key, other: Key) -> None:
    """Count under a label value, or under `other` once there are too many."""
    counter[key if key in counter or len(counter) < _MAX_LABELS else other] += 1
