"""Early rejection by the load now, and by the load when this prefill will end."""

from baton.core.ids import Role
from baton.policy.admission import (
    AdmissionQuestion,
    InFlight,
    admission_refusal,
    decode_load,
    num_decoding,
)
from baton.policy.routing.decision import Decision, Pair
from tests.policy.route_questions import worker

ROUTE = Decision(pair=Pair(prefill="p", decode="d"), ttft_us=1000.0, tpot_us=10.0)
DECODES = [worker(name, Role.DECODE, max_requests=4) for name in ("d0", "d1")]


def asked(*, predicts: bool = False, **fields) -> AdmissionQuestion:
    return AdmissionQuestion(now_us=0, predicts=predicts, **fields)


def decoding(*starts_us: int) -> list[InFlight]:
    return [InFlight(decodes_from_us=s, is_decoding=s <= 0) for s in starts_us]


def test_the_count_is_of_now_or_of_then():
    """t_d is 500: those of -600 leave before, those of -100 before 1000, 800 will have begun."""
    requests = decoding(-600, -100, 800, 900, 1200)
    question = asked(predicts=True, decode_us=500)
    assert num_decoding(requests, asked(), 1000) == 2
    assert num_decoding(requests, question, 1000) == 2
    assert num_decoding(requests, question, 1250) == 3
    assert num_decoding(requests, question, 390) == 1
    assert num_decoding(requests, asked(predicts=True), 1000) == 4, "nobody is known to leave"


def test_a_decode_side_is_loaded_in_time_and_in_room():
    timed = [
        worker(n, Role.DECODE, decode_step_us=100.0, decode_us_per_sequence=10.0, running=5)
        for n in ("d0", "d1")
    ]
    assert decode_load(8, timed, 100) == 1.0
    assert decode_load(18, timed, 100) == 1.5, "ten at each: 50 more than at five"
    assert decode_load(6, DECODES, 0) == 1.0 and decode_load(8, DECODES, 0) == 1.25
    assert decode_load(5, [], 100) == 0.0


def test_early_rejection_sees_only_who_decodes_now():
    """Eight prompts are on their way: the early form admits a ninth, the predicted one does not."""
    coming = decoding(*[500] * 8)
    question = asked(predicts=True, decode_us=10_000)
    assert admission_refusal(asked(decode_us=10_000), ROUTE, DECODES, coming) is None
    refused = admission_refusal(question, ROUTE, DECODES, coming)
    assert refused is not None and refused.code == "decode_load"


def test_the_predicted_form_admits_where_room_will_be_and_the_early_one_does_not():
    leaving = decoding(*[-100] * 8)
    early = admission_refusal(asked(decode_us=600), ROUTE, DECODES, leaving)
    assert early is not None and (early.code, early.wait_us) == ("decode_load", 500)
    predicted = asked(predicts=True, decode_us=600)
    assert admission_refusal(predicted, ROUTE, DECODES, leaving) is None


def test_the_larger_side_refuses_and_says_how_long_to_wait():
    refused = admission_refusal(asked(ttft_slo_us=800), ROUTE, DECODES, [])
    assert refused is not None
    assert (refused.code, refused.wait_us, refused.ttft_us) == ("prefill_load", 200, 1000)
    assert admission_refusal(asked(ttft_slo_us=1000), ROUTE, DECODES, []) is None
    crowded = admission_refusal(asked(ttft_slo_us=999), ROUTE, DECODES, decoding(*[-1] * 20))
    assert crowded is not None and crowded.code == "decode_load"


def test_without_a_route_only_the_decode_side_can_refuse():
    assert admission_refusal(asked(ttft_slo_us=1), None, DECODES, []) is None
    full = admission_refusal(asked(), None, DECODES, decoding(*[-1] * 8))
    assert full is not None and full.code == "decode_load"
