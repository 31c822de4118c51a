"""History and metrics of served requests: what is kept, what is counted, and all of it bounded."""

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from baton.telemetry.live.drain import DrainClock
from baton.telemetry.live.history import SETTLE_US, Recent, TraceHistory
from baton.telemetry.live.story_metrics import StoryMetrics
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.phases import PHASES
from baton.telemetry.trace.reading import Lines, read_trace
from baton.telemetry.trace.story import tell
from tests.telemetry.trace.simulated import events_of_seed, lines_of, read

SEED = 4


def event(at_us: int, name: str, request_id: str = "r", place: str = "router", **data):
    return TraceEvent(
        at_us=at_us, place=place, name=name, request_id=request_id, generation=1, data=data
    )


def values(metrics: StoryMetrics, name: str) -> dict[tuple, float]:
    families = text_string_to_metric_families(metrics.render().decode())
    samples = next(f for f in families if f.name == name).samples
    return {(s.name.removeprefix(name), *s.labels.values()): s.value for s in samples}


def test_live_stories_are_those_of_the_file():
    """Without events of chunks, which are not sent, all but overlap is the same."""
    events = events_of_seed(SEED)
    told: list[Recent] = []
    history = TraceHistory(1000, told.append)
    for one in events:
        history.take(one, one.at_us)
    history.settle(events[-1].at_us + SETTLE_US)
    trace = read(events)
    assert len(told) > 5 and history.num_dropped == 0
    for recent in told:
        whole = tell(trace.by_request[recent.story.request_id])
        assert recent.story.tiling == whole.tiling
        assert recent.story.ledger == whole.ledger
        assert recent.story.work.exposed_us == whole.work.exposed_us


def test_kept_events_are_a_trace_that_keeps_the_contract():
    history = TraceHistory(1000, lambda _: None)
    events = events_of_seed(SEED)
    for one in events:
        history.take(one, one.at_us)
    history.settle(events[-1].at_us + SETTLE_US)
    trace = read_trace([Lines("live", lines_of(list(history.events())).data)])
    assert trace.check() == {} and trace.violations == [] and not trace.has_details


def test_history_is_bounded_in_requests_and_events():
    history = TraceHistory(3, lambda _: None, least_open=0)
    for number in range(10):
        history.take(event(number, "arrived", f"r{number}", num_tokens=1), number)
        history.take(event(number, "ended", f"r{number}", state="FAILED"), number)
    history.settle(SETTLE_US + 20)
    assert [story.request_id for story in history.last(9)] == ["r9", "r8", "r7"]
    assert history.find("r0") is None and history.find("r9") is not None
    for number in range(1000):
        history.take(event(number, "preempted", "big", "d", num_tokens=1), number)
    assert history.num_dropped > 400
    for number in range(100):
        history.take(event(number, "arrived", f"open{number}", num_tokens=1), number)
    assert history.num_open <= 13
    history.take(event(5, "finished", "r9", "d", reason="x", num_tokens=1), 5)
    assert len(history.find("r9").events) == 2, "a late word changes no story"
    assert history.num_late == 1


def test_long_answers_at_a_high_rate_are_told_in_full():
    """10,000 requests under way at once are fewer than the least bound, whatever is kept."""
    told: list[Recent] = []
    history = TraceHistory(100, told.append)
    for number in range(10_000):
        history.take(event(number, "arrived", f"r{number}", num_tokens=1), number)
    for number in range(10_000):
        history.take(event(20_000, "ended", f"r{number}", state="FINISHED"), 20_000)
    history.settle(20_000 + SETTLE_US)
    assert (len(told), history.num_dropped, history.num_open) == (10_000, 0, 0)


def test_phases_add_up_in_the_metrics_too():
    metrics, ttft_us = StoryMetrics(), 0
    trace = read(events_of_seed(SEED))
    num = 0
    for events in trace.by_request.values():
        if any(e.name == "arrived" for e in events):
            story = tell(events)
            metrics.tell(story)
            ttft_us += story.ttft_us
            num += bool(story.ttft_us)
    found = values(metrics, "baton_request_phase_seconds")
    sums = [found["_sum", str(phase)] for phase in PHASES]
    assert num > 3 and abs(sum(sums) - ttft_us / 1e6) < 1e-9
    assert {found["_count", str(phase)] for phase in PHASES} == {num}
    bound = values(metrics, "baton_requests_bound_by")
    assert sum(bound.values()) == num


def finished(ttft_us: int, gap_us: int, num_tokens: int = 200):
    """A request of 5 output tokens."""
    end_us = ttft_us + 4 * gap_us
    return tell(
        [
            event(0, "arrived", num_tokens=num_tokens),
            event(0, "routed", mode="disaggregated", prefill="p", decode="d"),
            event(ttft_us, "first_token"),
            event(end_us, "finished", place="d", reason="length", num_tokens=5),
            event(end_us, "ended", state="FINISHED"),
        ]
    )


def ended(state: str):
    return tell([event(0, "arrived", num_tokens=200), event(9, "ended", state=state)])


def test_attainment_counts_joint_request_by_request_and_failures_as_missed():
    metrics = StoryMetrics(ttft_slo_us=1_000, tpot_slo_us=100)
    for story in (finished(1_000, 100), finished(2_000, 50), finished(500, 200)):
        metrics.tell(story)
    for state in ("FAILED", "REJECTED", "CANCELLED"):
        metrics.tell(ended(state))
    metrics.tell(finished(500, 50, num_tokens=9_000))
    cell, other = "prompt<=512 output<=32", "prompt>8192 output<=32"
    judged = values(metrics, "baton_slo_requests")
    assert judged == {("_total", cell): 5, ("_total", other): 1}
    met = values(metrics, "baton_slo_met")
    assert [met["_total", cell, clock] for clock in ("ttft", "tpot", "joint")] == [2, 2, 1]
    assert metrics.attainment()[cell]["joint"] == 0.2
    assert metrics.attainment()[other] == {"num": 1, "ttft": 1, "tpot": 1, "joint": 1}


def test_a_request_is_judged_by_its_own_targets_before_those_of_the_deployment():
    story = finished(2_000, 150)
    own = {
        "meets both of its own": {"ttft_slo_us": 3_000, "tpot_slo_us": 200},
        "its own first, ours for the rest": {"ttft_slo_us": 3_000},
        "has none": {},
    }
    metrics = StoryMetrics(ttft_slo_us=1_000, tpot_slo_us=100)
    for targets in own.values():
        metrics.tell(msgspec.structs.replace(story, **targets))
    (cell,) = metrics.attainment().values()
    assert [round(3 * cell[clock]) for clock in ("ttft", "tpot", "joint")] == [2, 1, 1]
    alone = StoryMetrics()
    alone.tell(msgspec.structs.replace(story, tpot_slo_us=100))
    alone.tell(story)
    (cell,) = alone.attainment().values()
    assert cell == {"num": 1, "ttft": 1.0, "tpot": 0.0, "joint": 0.0}, "who has none is not judged"


def test_own_targets_come_with_the_request():
    said = {"waited_us": 0, "ttft_slo_us": 5, "tpot_slo_us": 7}
    told = tell([event(0, "received", **said), event(0, "arrived", num_tokens=1)])
    assert (told.ttft_slo_us, told.tpot_slo_us) == (5, 7)


def test_without_targets_nobody_is_judged():
    metrics = StoryMetrics()
    metrics.tell(finished(1_000, 100))
    assert (
        values(metrics, "baton_slo_requests") == values(metrics, "baton_slo_target_seconds") == {}
    )


def test_decisions_refusals_and_failures_by_reason():
    metrics = StoryMetrics()
    metrics.take(
        event(1, "routed", policy="pair", reason="colocated", mode="", prefill="", decode="")
    )
    metrics.take(event(2, "rejected", code="ttft_slo", reason="in 9 ms"))
    metrics.take(event(3, "attempt_failed", reason="engine_error: 7", fallback="reroute"))
    metrics.take(event(4, "ended", state="REJECTED"))
    assert values(metrics, "baton_route_decisions") == {("_total", "pair", "colocated"): 1}
    assert values(metrics, "baton_rejections") == {("_total", "ttft_slo"): 1}
    assert values(metrics, "baton_failed_attempts") == {("_total", "engine_error", "reroute"): 1}
    assert values(metrics, "baton_requests_ended") == {("_total", "rejected"): 1}


def test_label_values_are_bounded_and_quoted():
    metrics = StoryMetrics()
    for number in range(200):
        metrics.take(event(1, "rejected", code=f'c"{number}\n', reason=""))
    found = values(metrics, "baton_rejections")
    assert len(found) == 65 and found["_total", "other"] == 136
    assert ("_total", 'c"0\n') in found


def test_drain_counts_what_a_revocation_waits_for():
    drain = DrainClock()
    for name in ("a", "b", "c"):
        drain.take(event(0, "routed", name))
    drain.take(event(5, "published", "a", "d"))
    drain.take(event(5, "published", "a"))
    drain.take(event(10, "routes_revoked", "", reason="operator"))
    assert (drain.depth, drain.num_rollbacks) == (2, 0)
    drain.take(event(12, "routed", "e"))
    drain.take(event(40, "attempt_failed", "b"))
    drain.take(event(70, "ended", "c"))
    assert (drain.depth, drain.num_rollbacks, drain.rollback_us) == (0, 1, 60)
    drain.take(event(80, "attempt_failed", "e"))
    drain.take(event(90, "routes_revoked", "", reason="again"))
    assert (drain.num_rollbacks, drain.rollback_us) == (2, 60), "nothing was under way"


def handed_over(request_id: str, at_us: int, *, said_at_d: bool) -> list[TraceEvent]:
    """One request from p to d; of d's words only the router's echo where it could not send them."""

    def one(after_us: int, name: str, place: str = "router", **data):
        return event(at_us + after_us, name, request_id, place, **data)

    steps = [
        one(0, "arrived", num_tokens=4),
        one(1, "routed", mode="disaggregated", prefill="p", decode="d"),
        one(3, "prefill_queued", "p", num_tokens=4),
        one(4, "prefill_running", "p", num_rows=4),
        one(8, "published"),
        one(9, "first_token"),
        one(10, "ended", state="FINISHED"),
    ]
    if said_at_d:
        at_d = {"num_tokens": 4, "num_chunks": 1, "num_layers": 1}
        steps.insert(2, one(2, "reserved", "d", visible_tokens=0, blocks=1))
        steps[5:5] = [one(6, "validated", "d"), one(7, "published", "d", **at_d)]
    return steps


def test_what_a_dead_worker_had_not_told_is_marked_and_breaks_no_contract():
    def checked(history: TraceHistory):
        return read_trace([Lines("live", lines_of(list(history.events())).data)])

    history = TraceHistory(10, lambda _: None)
    for one in handed_over("before", 0, said_at_d=False):  # nothing excuses this one
        history.take(one, one.at_us)
    for one in handed_over("told", 100, said_at_d=False):
        history.take(one, one.at_us)
    for one in handed_over("open", 2_000_000, said_at_d=False):
        history.take(one, one.at_us)
    history.settle(2_000_000)
    assert history.find("told") is not None and history.find("open") is None
    history.lose("p", 0, 2_000_011)
    history.settle(2_000_011 + SETTLE_US)
    assert set(checked(history).check()) == {"before", "told", "open"}, "p could say none of it"
    assert len(history.find("open").events) == 8

    history = TraceHistory(10, lambda _: None)
    for start_us, name in ((0, "before"), (100, "told"), (2_000_000, "open")):
        for one in handed_over(name, start_us, said_at_d=False):
            history.take(one, one.at_us)
    history.settle(2_000_000)
    history.lose("d", 50, 2_000_011)
    for one in handed_over("after", 2_000_020, said_at_d=False):
        history.take(one, one.at_us)
    for one in handed_over("whole", 2_000_040, said_at_d=True):
        history.take(one, one.at_us)
    history.settle(2_000_060 + SETTLE_US)
    trace = checked(history)
    assert trace.violations == [] and trace.lost == {"d": 2}
    assert set(trace.check()) == {"before", "after"}, "d was heard until 50, or lived anew"
