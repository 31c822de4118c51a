"""The scheduler's half: what is asked of vLLM, what is ordered of the workers, and when never."""

import msgspec
import pytest

from baton.core.ids import Direction
from baton.integrations.vllm.orders import (
    AbortHold,
    AbortLoad,
    Drop,
    Hold,
    Load,
    Refused,
    StepOrders,
    Stream,
    Watch,
)
from baton.integrations.vllm.scheduler_side import RequestView, SchedulerSide
from baton.integrations.vllm.ticket import TicketIssuer, decode_params, prefill_params
from tests.integrations.vllm.members import SIGNER, VERIFIER, fence, info

PROMPT = tuple(range(70))
BLOCKS = (4, 9, 2)


def ticket(direction=Direction.PULL, request_id="r1"):
    source, destination = info("p0"), info("d0")
    return TicketIssuer(SIGNER).mint(
        fence(source, destination, request_id=request_id),
        source,
        destination,
        direction=direction,
        route_epoch=1,
        now_us=0,
        deadline_ms=1_000,
    )


def side(*, recomputes=True, can_send=True):
    return SchedulerSide(VERIFIER, 32, recomputes=recomputes, can_send=can_send)


def view(params=None, vllm_id="a", outputs=(), stopped=False):
    return RequestView(
        vllm_id=vllm_id,
        token_ids=PROMPT,
        output_token_ids=outputs,
        is_stopped=stopped,
        params=params,
    )


def orders(scheduler):
    return msgspec.msgpack.decode(scheduler.take(is_idle=False), type=StepOrders).orders


def kinds(scheduler):
    return [type(order) for order in orders(scheduler)]


def decode(scheduler, text=None, vllm_id="a"):
    request = view(decode_params(text or ticket()), vllm_id)
    scheduler.on_new(request)
    return request


def test_a_decode_leg_loads_what_its_prefix_cache_lacks():
    scheduler = side()
    request = decode(scheduler)
    assert kinds(scheduler) == [Watch]
    assert scheduler.num_external(request, 32) == 38
    assert scheduler.num_external(request, 32) == 38  # asking changes nothing
    scheduler.on_allocated(request, BLOCKS, 38)
    (load,) = orders(scheduler)
    assert isinstance(load, Load)
    assert (load.token_start, load.visible_blocks, load.block_ids) == (32, (4,), (9, 2))


def test_what_was_loaded_once_is_never_loaded_again():
    scheduler = side()
    request = decode(scheduler)
    scheduler.num_external(request, 0)
    scheduler.on_allocated(request, BLOCKS, 70)
    scheduler.on_received(["a"])
    orders(scheduler)
    scheduler.on_allocated(request, BLOCKS, 0)  # vLLM calls again after the load
    assert scheduler.num_external(request, 0) == 0  # preempted: computed here
    scheduler.on_finished(view(request.params), BLOCKS)
    assert orders(scheduler) == () and scheduler.legs == {}


def test_an_aborted_load_is_ordered_to_stop_and_an_unstarted_one_dropped():
    scheduler = side()
    request = decode(scheduler)
    scheduler.num_external(request, 0)
    scheduler.on_allocated(request, BLOCKS, 70)
    orders(scheduler)
    assert scheduler.on_finished(request, BLOCKS) == (False, None)
    assert kinds(scheduler) == [AbortLoad]
    waiting = decode(scheduler)
    scheduler.on_finished(waiting, ())
    assert kinds(scheduler) == [Watch, Drop]


def test_where_everything_is_here_already_the_source_is_let_go():
    scheduler = side()
    request = decode(scheduler)
    assert scheduler.num_external(request, 70) == 0
    scheduler.on_allocated(request, BLOCKS, 0)
    assert kinds(scheduler) == [Watch, Drop]


def test_samples_of_one_prompt_load_it_once():
    scheduler, text = side(), ticket()
    first, second = decode(scheduler, text, "a"), decode(scheduler, text, "b")
    assert scheduler.num_external(first, 0) == 70
    assert scheduler.num_external(second, 0) == 70
    scheduler.on_allocated(first, BLOCKS, 70)
    assert scheduler.num_external(second, 0) is None
    scheduler.on_received(["a"])
    assert scheduler.num_external(second, 64) == 0
    scheduler.on_allocated(second, BLOCKS, 0)
    scheduler.on_finished(second, BLOCKS)
    dropped = [order for order in orders(scheduler) if isinstance(order, Drop)]
    assert [(one.vllm_id, one.is_shared) for one in dropped] == [("b", True)]


@pytest.mark.parametrize("text", ["forged", None])
def test_parameters_without_a_signature_are_refused(text):
    params = {"do_remote_prefill": True, "remote_host": "10.0.0.1", "baton_ticket": text}
    recompute = side()
    recompute.on_new(view(params))
    assert recompute.num_external(view(params), 0) == 0
    (refused,) = orders(recompute)
    assert refused.reason in ("missing", "malformed")
    strict = side(recomputes=False)
    strict.on_new(view(params))
    assert strict.num_external(view(params), 0) == 70  # so that vLLM hears of a failed load
    strict.on_allocated(view(params), BLOCKS, 70)
    _, load = orders(strict)
    assert load.ticket is None and load.refusal in ("missing", "malformed")
    prefill = side()
    prefill.on_new(view({"do_remote_decode": True, "baton_ticket": text}))
    done, answer = prefill.on_finished(view(outputs=(5,), stopped=True), BLOCKS)
    assert not done and answer["baton_refusal"] in ("missing", "malformed")
    assert kinds(prefill) == [Refused]


def test_a_finished_prompt_is_held_with_its_first_token():
    scheduler = side()
    params = prefill_params(ticket())
    scheduler.on_new(view(params))
    assert scheduler.num_external(view(params), 32) == 0
    done, answer = scheduler.on_finished(view(params, outputs=(5,), stopped=True), (*BLOCKS, 7))
    (hold,) = orders(scheduler)
    assert done and isinstance(hold, Hold)
    assert (hold.block_ids, hold.first_token.token_id, hold.num_cached_tokens) == (BLOCKS, 5, 32)
    assert answer["do_remote_prefill"] and answer["remote_prefill_cached_tokens"] == 32


@pytest.mark.parametrize(
    ("changes", "blocks", "word"),
    [
        ({"outputs": (5,)}, BLOCKS, "prefill_aborted"),
        ({"stopped": True}, BLOCKS, "no_first_token"),
        ({"outputs": (5,), "stopped": True}, (4, 9), "blocks_gone"),
    ],
)
def test_what_is_not_complete_is_never_handed_over(changes, blocks, word):
    scheduler = side()
    params = prefill_params(ticket())
    scheduler.on_new(view(params))
    done, answer = scheduler.on_finished(view(params, **changes), blocks)
    assert not done and answer["baton_refusal"] == word and orders(scheduler) == ()


def test_a_consumer_hands_nothing_over():
    scheduler = side(can_send=False)
    params = prefill_params(ticket(Direction.PUSH))
    scheduler.on_new(view(params))
    assert scheduler.streams() == []
    _, answer = scheduler.on_finished(view(params, outputs=(5,), stopped=True), BLOCKS)
    assert answer["baton_refusal"] == "not_a_producer"


def test_a_push_streams_its_steps_and_is_void_once_preempted():
    scheduler = side()
    params = prefill_params(ticket(Direction.PUSH))
    scheduler.on_new(view(params))
    assert scheduler.streams() == ["a"]
    scheduler.on_step(view(params), (4, 9), 0, 40)
    scheduler.on_step(view(params), BLOCKS, 40, 71)
    first, second = orders(scheduler)
    assert isinstance(first, Stream) and (first.start, first.end) == (0, 40)
    assert (second.start, second.end) == (40, 70)
    scheduler.on_preempted("a")
    assert kinds(scheduler) == [AbortHold] and scheduler.streams() == []
    done, answer = scheduler.on_finished(view(params, outputs=(5,), stopped=True), BLOCKS)
    assert not done and answer["baton_refusal"] == "preempted" and orders(scheduler) == ()


def test_an_aborted_stream_keeps_its_blocks_until_nobody_reads_them():
    scheduler = side()
    params = prefill_params(ticket(Direction.PUSH))
    scheduler.on_new(view(params))
    scheduler.on_step(view(params), BLOCKS, 0, 70)
    orders(scheduler)
    done, _ = scheduler.on_finished(view(params), BLOCKS)
    (abort,) = orders(scheduler)
    assert done and isinstance(abort, AbortHold) and abort.is_awaited


def test_requests_without_a_handoff_are_none_of_its_business():
    scheduler = side()
    scheduler.on_new(view())
    assert scheduler.num_external(view(), 0) == 0
    scheduler.on_allocated(view(), BLOCKS, 0)
    assert scheduler.on_finished(view(outputs=(5,), stopped=True), BLOCKS) == (False, None)
    assert not scheduler.has_orders
