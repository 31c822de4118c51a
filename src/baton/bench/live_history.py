"""What the live history costs at a thousand requests a second; the limits are stated first.

    python -m baton.bench.live_history [--rate 1000] [--minutes 3] [--answer-s 0.4]

Events of a split deployment, as router and workers say them, are folded by the gateway's own code
in virtual time: router events one by one, those of a worker with each heartbeat. Building them is
not measured, taking them is; so is one look at the page's feed in every virtual second.
"""

import argparse
import os
import resource
import time
from collections.abc import Iterator

import msgspec

from baton.config import BatonConfig, load_config
from baton.core.effects import Trace
from baton.core.messages import Traced, TraceMark
from baton.nodes.router import Router
from baton.runtime.issuer_key import mint_signer
from baton.runtime.live_telemetry import LiveTelemetry
from baton.telemetry.live.feed import Feed, make_feed

RATE, MINUTES = 1000, 3.0
LIMIT_CORE = 0.5
"""Share of one core that folding may take, looks at the page included."""
LIMIT_FEED_NBYTES = 128 << 10
LIMIT_GROWTH_MIB = 16.0
"""Of the process after the first virtual minute: a history that is full does not grow."""
_HEARTBEAT_US = 200_000
_LOOK_US = 1_000_000
_PREFILLS, _DECODES = 4, 4
_TTFT_US, _ANSWER_S = 60_000, 0.4
_TARGETS = ("router.ttft_slo_ms=100", "router.tpot_slo_ms=20")


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """What one run measured."""

    num_requests: int
    num_events: int
    fold_s: float
    """CPU time of taking events."""
    look_s: float
    """CPU time of all looks at the feed."""
    longest_look_s: float
    virtual_s: float
    feed_nbytes: int
    """The largest feed, as JSON."""
    most_open: int
    num_kept: int
    num_dropped: int
    """Events beyond a bound."""
    growth_mib: float

    @property
    def events_per_s(self) -> float:
        """Events that one core takes in a second."""
        return self.num_events / self.fold_s

    @property
    def core_share(self) -> float:
        """Of one core, at the rate that was asked."""
        return (self.fold_s + self.look_s) / self.virtual_s


class VirtualLoad:
    """Requests that arrive evenly; a mark of each is said when a gateway would hear it."""

    def __init__(self, rate: int, answer_s: float) -> None:
        self._rate = rate
        self._end = max(1.2, answer_s * 1e6 / _TTFT_US)
        self._num = 0

    def until(self, at_us: int) -> Iterator[tuple[str, list[tuple[str, TraceMark]]]]:
        """The requests that arrived by then: their id, and what each place says of them."""
        while self._num * 1_000_000 < at_us * self._rate:
            yield self._request(self._num)
            self._num += 1

    def _request(self, number: int) -> tuple[str, list[tuple[str, TraceMark]]]:
        begin_us, request_id = number * 1_000_000 // self._rate, f"{number:032x}"
        prefill = f"prefill-{number % _PREFILLS}"
        decode = f"decode-{_PREFILLS + number // _PREFILLS % _DECODES}"
        num_tokens, num_output = 64 << number % 6, 8 << number % 5
        marks: list[tuple[str, TraceMark]] = []

        def say(place: str, share: float, name: str, **data: int | float | str) -> None:
            generation = 0 if name in ("received", "arrived") else 1
            at_us = begin_us + int(share * _TTFT_US)
            marks.append((place, TraceMark(at_us, name, request_id, generation, data)))

        say("router", 0.01, "received", waited_us=80, operation="chat")
        say("router", 0.01, "arrived", num_tokens=num_tokens)
        route = {"mode": "disaggregated", "prefill": prefill, "decode": decode}
        say("router", 0.02, "routed", **route, policy="shortest_queue", reason="queue")
        say(decode, 0.05, "reserved", visible_tokens=0, blocks=48)
        say(prefill, 0.1, "prefill_queued", num_tokens=num_tokens)
        say(prefill, 0.1, "prefill_started", cached_tokens=0)
        say(prefill, 0.2 + 0.3 * (number % 3), "prefill_running", num_rows=num_tokens)
        say(decode, 0.2, "access_granted")
        say(prefill, 0.2, "authorized", duration_us=90)
        say(prefill, 0.9, "last_layer_ready")
        say(prefill, 0.9, "prefill_done", num_tokens=num_tokens)
        say(prefill, 0.91, "sealed")
        say(decode, 0.92, "all_visible")
        say(decode, 0.93, "validated")
        counts = {"num_chunks": 6, "num_layers": 6, "logical_nbytes": 6 << 20}
        say(decode, 0.94, "published", num_tokens=num_tokens, **counts)
        say(decode, 0.94, "admitted", num_tokens=num_tokens)
        say("router", 0.96, "published")
        say("router", 0.98, "first_token")
        say("router", 1.0, "first_written")
        say(prefill, 1.1, "source_released")
        end = self._end
        say(decode, end, "finished", reason="length", num_tokens=num_output)
        say("router", end, "ended", state="FINISHED")
        say("router", end, "answered", status=200)
        return request_id, marks


def fold(config: BatonConfig, rate: int, minutes: float, answer_s: float = _ANSWER_S) -> Folded:
    """Take the events of so many virtual minutes, of requests that end after `answer_s`."""
    clock = _Clock()
    live = LiveTelemetry(config, clock=clock)
    router = Router(config.router, config.transfer, config.cache, signer=mint_signer())
    load, encoder = VirtualLoad(rate, answer_s), msgspec.json.Encoder()
    waiting: dict[int, list[tuple[str, TraceMark]]] = {}
    num_requests = num_events = feed_nbytes = most_open = 0
    fold_s = look_s = longest_s = rss_mib = 0.0
    end_us = int(minutes * 60e6)
    while clock.at_us < end_us:
        clock.at_us += _HEARTBEAT_US
        for _, marks in load.until(clock.at_us):
            num_requests += 1
            for place, mark in marks:
                waiting.setdefault(mark.at_us // _HEARTBEAT_US, []).append((place, mark))
        due = waiting.pop(clock.at_us // _HEARTBEAT_US - 1, [])
        num_events += len(due)
        fold_s += _take(live, due, clock.at_us)
        most_open = max(most_open, live.history.num_open)
        if clock.at_us % _LOOK_US == 0:
            begin_s = time.process_time()
            body = encoder.encode(_look(router, live, clock.at_us))
            took_s = time.process_time() - begin_s
            look_s, longest_s = look_s + took_s, max(longest_s, took_s)
            feed_nbytes = max(feed_nbytes, len(body))
        if clock.at_us == min(60_000_000, end_us // _LOOK_US // 2 * _LOOK_US):
            rss_mib = _rss_mib()
    return Folded(
        num_requests=num_requests,
        num_events=num_events,
        fold_s=fold_s,
        look_s=look_s,
        longest_look_s=longest_s,
        virtual_s=end_us / 1e6,
        feed_nbytes=feed_nbytes,
        most_open=most_open,
        num_kept=len(live.history.last(1 << 20)),
        num_dropped=live.history.num_dropped,
        growth_mib=max(0.0, _rss_mib() - rss_mib),
    )


class _Clock:
    """Virtual time in microseconds."""

    def __init__(self) -> None:
        self.at_us = 0

    def __call__(self) -> int:
        return self.at_us


def _take(live: LiveTelemetry, due: list[tuple[str, TraceMark]], now_us: int) -> float:
    """CPU seconds of taking what was said in one heartbeat."""
    due.sort(key=lambda one: one[1].at_us)
    own = [
        (Trace(name=m.name, request_id=m.request_id, generation=m.generation, data=m.data), m.at_us)
        for place, m in due
        if place == "router"
    ]
    told: dict[str, list[TraceMark]] = {}
    for place, mark in due:
        if place != "router":
            told.setdefault(place, []).append(mark)
    words = [(place, Traced(sent_us=now_us, marks=tuple(marks))) for place, marks in told.items()]
    begin_s = time.process_time()
    for trace, at_us in own:
        live.record(trace, at_us)
    for place, word in words:
        live.hear(place, 1, word)
    return time.process_time() - begin_s


def _look(router: Router, live: LiveTelemetry, now_us: int) -> Feed:
    settled = live.settled()
    return make_feed(router, settled.history, settled.metrics, now_us)


def _rss_mib() -> float:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Print the limits, then what was measured; 1 where one is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=RATE, help="requests a second")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="virtual ones")
    parser.add_argument("--answer-s", type=float, default=_ANSWER_S, help="of each request")
    args = parser.parse_args()
    print(
        f"limits at {args.rate} requests/s: {LIMIT_CORE:.0%} of a core, feed of "
        f"{LIMIT_FEED_NBYTES >> 10} KiB, {LIMIT_GROWTH_MIB:.0f} MiB more after the first minute, "
        "no event dropped"
    )
    config = load_config(None, list(_TARGETS))
    found = fold(config, args.rate, args.minutes, args.answer_s)
    need = found.num_events / found.virtual_s
    print(
        f"{found.num_events} events of {found.num_requests} requests in {found.virtual_s:.0f} "
        f"virtual seconds at load {os.getloadavg()[0]:.1f}\n"
        f"events/s: one core takes {found.events_per_s:.0f}, {need:.0f} come: "
        f"{1e6 / found.events_per_s:.1f} us each\n"
        f"of a core: {found.core_share:.1%}, of it {found.look_s / found.virtual_s:.1%} for a look "
        f"each second, the longest {1e3 * found.longest_look_s:.0f} ms\n"
        f"feed: at most {found.feed_nbytes / 1024:.1f} KiB\n"
        f"kept: {found.num_kept} requests, at most {found.most_open} open, "
        f"{found.num_dropped} events dropped; "
        f"{found.growth_mib:.1f} MiB more after the first minute"
    )
    is_met = (
        found.core_share <= LIMIT_CORE
        and found.feed_nbytes <= LIMIT_FEED_NBYTES
        and found.growth_mib <= LIMIT_GROWTH_MIB
        and not found.num_dropped
    )
    print("met" if is_met else "NOT met")
    return 0 if is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
