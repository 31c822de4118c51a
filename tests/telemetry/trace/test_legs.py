"""Servers that are observed by their legs: coarse phases, and a contract that is no weaker."""

import pytest

from baton.telemetry.live.spans import leg_span_id, spans_of
from baton.telemetry.live.story_metrics import StoryMetrics
from baton.telemetry.trace.bound import bound_of, explain
from baton.telemetry.trace.contract import Clocks, check_request
from baton.telemetry.trace.phases import PHASES, Phase, tile
from baton.telemetry.trace.story import tell
from baton.telemetry.trace.violation import Fault, Rule
from baton.telemetry.trace.waterfall import waterfall
from tests.telemetry.trace.test_phases import SPLIT, event

ROUTED = {"mode": "disaggregated", "prefill": "p", "decode": "d", "observed": "legs"}
LEGS = [
    event(1_000, "router", "received", 0, waited_us=200),
    event(1_100, "router", "arrived", 0, num_tokens=60),
    event(1_500, "router", "routed", **ROUTED),
    event(1_700, "router", "leg_sent", leg="prefill", server="p"),
    event(9_000, "router", "prefill_answered", server="p", num_tokens=64, cached_tokens=32),
    event(9_010, "router", "leg_sent", leg="decode", server="d"),
    event(15_000, "router", "decode_answered", server="d"),
    event(15_000, "router", "first_token"),
    event(15_100, "router", "first_written", 0),
    event(30_000, "router", "ended", 0, state="FINISHED", num_output_tokens=16),
]
HANDOFF = [
    event(9_500, "d", "reserved", visible_tokens=0, blocks=2),
    event(12_000, "d", "all_visible", duration_us=2_300),
    event(12_100, "d", "validated"),
    event(12_150, "d", "published", num_tokens=64, num_chunks=3, num_layers=4, logical_nbytes=99),
]


def merged(*parts):
    return sorted((one for part in parts for one in part), key=lambda one: one.at_us)


def broken(events):
    found = check_request(events, Clocks({}), has_details=False)
    return [(one.fault, one.rule) for one in found]


def test_what_nobody_saw_is_a_coarse_phase_and_no_invented_time():
    story = tell(LEGS)
    assert dict(zip(PHASES, story.tiling.durations_us, strict=True)) == {
        **dict.fromkeys(PHASES, 0),
        Phase.ARRIVAL: 300,
        Phase.WAIT: 400,
        Phase.ROUTE: 200,
        Phase.PREFILL_LEG: 7_300,
        Phase.DECODE_LEG: 6_000,
        Phase.FIRST_TOKEN: 100,
    }
    assert story.ttft_us == 14_300 and not story.has_exposed
    assert (story.num_tokens, story.cached_tokens, story.num_output_tokens) == (64, 32, 16)
    assert bound_of(story) is Phase.PREFILL_LEG
    assert "does not tell them apart" in explain(story)
    assert "not observed" in waterfall(story)[-1]
    metrics = StoryMetrics()
    metrics.tell(story)
    assert "baton_kv_exposed_transfer_seconds_count 0" in metrics.render().decode()


def test_a_connector_that_reports_its_steps_cuts_them_out():
    story = tell(merged(LEGS, HANDOFF))
    tiling = story.tiling
    assert tiling.of(Phase.TRANSFER) == 3_000 and tiling.of(Phase.VALIDATE) == 100
    assert tiling.of(Phase.PUBLISH) == 50 and tiling.of(Phase.DECODE_LEG) == 2_850
    assert tiling.total_us == 14_300
    assert story.has_exposed and story.work.exposed_us == 12_150 - 9_500
    assert story.ledger.logical_nbytes == 99
    assert broken(merged(LEGS, HANDOFF)) == [] == broken(LEGS)


def test_a_whole_answer_has_no_first_token_and_is_not_judged_by_one():
    whole = [
        event(15_000, "router", "decode_answered", server="d", whole=1)
        if one.name == "decode_answered"
        else one
        for one in LEGS
        if one.name not in ("first_token", "first_written")
    ]
    story = tell(whole)
    assert story.is_whole and story.ttft_us == 0 and story.tiling.total_us == 29_200
    assert story.tiling.of(Phase.DECODE_LEG) == 6_000
    assert explain(story).startswith("whole answer after 29.2 ms (p to d), its first token")
    metrics = StoryMetrics(ttft_slo_us=1)
    metrics.tell(story)
    assert metrics.attainment() == {}
    metrics.tell(tell(LEGS))
    (cell,) = metrics.attainment().values()
    assert cell["num"] == 1 and cell["ttft"] == 0.0


@pytest.mark.parametrize(
    ("last", "phase"),
    [
        (1, Phase.WAIT),
        (2, Phase.ROUTE),
        (3, Phase.PREFILL_LEG),
        (5, Phase.DECODE_LEG),
    ],
)
def test_who_ends_without_a_token_spent_the_rest_where_it_was(last, phase):
    ended = event(50_800, "router", "ended", 0, state="CANCELLED")
    tiling = tile([*LEGS[: last + 1], ended])
    assert tiling.total_us == 50_000 and max(PHASES, key=tiling.of) is phase


@pytest.mark.parametrize(
    ("name", "fault", "rule"),
    [
        ("leg_sent", Fault.TRUNCATED, Rule.WHOLE),
        ("decode_answered", Fault.TRUNCATED, Rule.WHOLE),
        ("all_visible", Fault.TRUNCATED, Rule.WHOLE),
        ("validated", Fault.TRUNCATED, Rule.WHOLE),
        ("reserved", Fault.TRUNCATED, Rule.WHOLE),
        ("routed", Fault.MIXED_GENERATION, Rule.GENERATION),
    ],
)
def test_a_missing_step_is_named(name, fault, rule):
    events = [one for one in merged(LEGS, HANDOFF) if one.name != name]
    if name == "routed":
        events = [one for one in events if one.name not in ("leg_sent", "prefill_answered")]
    assert broken(events)[0] == (fault, rule)


def test_a_publication_after_the_answer_that_needed_it_is_named():
    late = [
        event(15_050, "d", "published", num_tokens=64, num_chunks=3, num_layers=4)
        if one.name == "published"
        else one
        for one in HANDOFF
    ]
    assert broken(merged(LEGS, late)) == [(Fault.REORDERED, Rule.PUBLICATION)]


def test_neither_way_to_observe_stands_in_for_the_other():
    """An own engine's request is not excused from its steps by legs, nor the other way round."""
    foreign = [(Fault.FOREIGN, Rule.OBSERVATION)]
    leg = event(2_500, "router", "leg_sent", leg="prefill", server="p")
    assert broken(merged(SPLIT, [leg])) == foreign
    without = [one for one in SPLIT if (one.place, one.name) != ("d", "published")]
    assert (Fault.TRUNCATED, Rule.WHOLE) in broken(without)
    step = event(2_500, "p", "prefill_running", num_rows=64)
    assert broken(merged(LEGS, [step])) == foreign
    assert broken(merged(LEGS, [event(14_999, "router", "published")])) == foreign


def test_each_leg_is_a_span_that_its_server_can_name_as_parent():
    events = merged(LEGS, HANDOFF)
    spans = {span.name: span for span in spans_of(tell(events), events, "m")}
    prefill, decode = spans["prefill leg"], spans["decode leg"]
    assert prefill.span_id == leg_span_id("r", 1, "p", "prefill")
    assert (prefill.start_us, prefill.end_us) == (1_700, 9_000)
    assert (decode.start_us, decode.end_us) == (9_010, 30_000)
    assert {prefill.parent_id, decode.parent_id} == {spans["route"].span_id}
    said = [one for span in spans.values() for one in span.events]
    assert len(said) == len(events), "each event is of one span"
