"""What client, gateway and workers noted of the same requests, as delays; and who uses them."""

import msgspec
import pytest
from tests.bench.profile.test_profile_parts import full_journal
from tests.policy.profiles import make_profile

from baton.bench.profile.assemble import assemble
from baton.bench.profile.delays import Seen, delays, queued_us
from baton.bench.profile.front_child import Passed
from baton.bench.profile.journal import Delayed
from baton.errors import BatonError
from baton.policy.service_profile import ServiceDelays, decode_profile, encode_profile
from baton.sim.replay.replay import replay
from baton.sim.replay.setup import Delays, ReplaySetup
from baton.telemetry.trace.event import TraceEvent
from baton.workload.request import Workload, WorkloadRequest

MEASURED = ServiceDelays(
    control_us=240.4, gateway_in_us=810.6, gateway_out_us=350.0, num_requests=96
)


def noted(number, in_us, out_us, num_tokens=3):
    """One request by three clocks that agree; its tokens are 1000 us apart."""
    sent_us = 10_000 * number
    left = [sent_us + 5000 + 1000 * k for k in range(num_tokens)]
    seen = Seen(sent_us=sent_us, token_us=tuple(at_us + out_us for at_us in left))
    return seen, Passed(request_id=f"n{number}", submitted_us=sent_us + in_us, token_us=left)


def noted_of(rows):
    seen, passed = {}, {}
    for number, row in enumerate(rows):
        seen[f"c{number}"], passed[f"c{number}"] = noted(number, *row)
    return seen, passed


def test_means_of_what_was_noted():
    seen, passed = noted_of([(700, 300), (900, 500)])
    found = delays(seen, passed, {"n0": 600, "n1": 900, "other": 10**9})
    assert found == ServiceDelays(
        control_us=250.0, gateway_in_us=800.0, gateway_out_us=400.0, num_requests=2
    )


def test_the_longest_twentieth_is_left_out():
    seen, passed = noted_of([(700, 300)] * 19 + [(90_000, 300)])
    found = delays(seen, passed, {f"n{k}": 300 if k else 10**8 for k in range(20)})
    assert (found.control_us, found.gateway_in_us) == (100.0, 700.0)


def test_an_answer_whose_chunks_hold_several_tokens_says_nothing_of_the_way_out():
    seen, passed = noted_of([(700, 300), (700, 9000)])
    passed["c1"].token_us.append(0)
    assert delays(seen, passed, {"n0": 300, "n1": 300}).gateway_out_us == 300.0


def test_nothing_to_compare_is_an_error_that_says_what_there_was():
    seen, passed = noted_of([(700, 300)])
    with pytest.raises(BatonError, match="1 requests left 0 traces and 3 comparable"):
        delays(seen, passed, {})


def test_traces_give_the_way_from_the_router_to_a_queue(tmp_path):
    def event(at_us, place, name, request_id):
        return TraceEvent(
            at_us=at_us, place=place, name=name, request_id=request_id, generation=1, data={}
        )

    files = {
        "router": [event(100, "router", "arrived", "a"), event(150, "router", "arrived", "b")],
        "worker": [
            event(400, "prefill-0", "prefill_queued", "a"),
            event(900, "prefill-0", "prefill_queued", "a"),  # again, after a preemption
            event(450, "prefill-0", "prefill_queued", "unknown"),
        ],
    }
    for name, events in files.items():
        text = b"\n".join(map(msgspec.json.encode, events)) + b"\n"
        (tmp_path / f"{name}.jsonl").write_bytes(text)
    assert queued_us(tmp_path) == {"a": 300}


def test_a_journal_with_delays_makes_a_profile_with_them(tmp_path):
    journal = full_journal(tmp_path / "j")
    assert assemble(journal, "now").delays is None
    journal.add(Delayed(delays=MEASURED))
    profile = assemble(journal, "now")
    assert profile.delays == MEASURED
    assert decode_profile(encode_profile(profile), "here") == profile


def test_a_profile_from_before_delays_were_measured_is_read():
    text = encode_profile(make_profile()).decode()
    older = text.replace('  "delays": null,\n', "")
    assert older != text
    assert decode_profile(older.encode(), "older").delays is None


def test_a_simulation_takes_the_measured_delays_or_its_own():
    assert Delays.of(make_profile()) == Delays()
    assert Delays.of(make_profile(delays=MEASURED)) == Delays(
        control_us=240, gateway_in_us=811, gateway_out_us=350
    )


def test_longer_delays_show_in_every_first_token():
    request = WorkloadRequest(arrival_us=0, num_prompt_tokens=32, num_output_tokens=2)
    workload = Workload(name="one", source="", requests=(request,))
    slow = msgspec.structs.replace(MEASURED, gateway_in_us=100_811.0)
    ttfts = []
    for measured in (MEASURED, slow):
        profile = make_profile(delays=measured)
        (record,) = replay(workload, ReplaySetup(delays=Delays.of(profile)), profile)
        ttfts.append(record.ttft_us)
    assert ttfts[1] - ttfts[0] == 100_000
