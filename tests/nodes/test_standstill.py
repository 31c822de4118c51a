"""Workers that live and do not get on: nothing waits for them for ever."""

import pytest
from msgspec.structs import replace

from baton.core.delivery import Failed, Finished
from baton.core.effects import DigestKV
from baton.core.events import WorkerLost
from baton.core.messages import Denied, Done, Reserve
from baton.core.request import Usage
from baton.sim.scene import calm_plan
from tests.stage import Stage


def hurried(**options: object) -> Stage:
    """Engines may take one second, streams may pause for two."""
    plan = calm_plan({"lease": "1000", "retry": "50", **{k: str(v) for k, v in options.items()}})
    router = replace(plan.router, batch_timeout_ms=1000, decode_stall_ms=2000)
    return Stage(replace(plan, router=router))


@pytest.mark.parametrize("victim", ["prefill", "decode"])
def test_a_worker_whose_engine_does_not_return_is_ended_and_streams_go_on(victim):
    stage = hurried(prefill=2, decode=2)
    stage.submit("r", prompt=20, max_tokens=30)
    stage.until(lambda: stage.tokens() or victim == "prefill")
    fence = stage.world.router.records["r"].fence
    stage.until(lambda: stage.world.router.records["r"].fence is not None)
    fence = stage.world.router.records["r"].fence
    name = fence.source_id if victim == "prefill" else fence.destination_id
    worker = stage.world.workers[name]
    worker.engine.submit = lambda order: None
    stage.submit("s", prompt=9)
    stage.finish_right()
    assert not worker.alive
    stage.run_for(1_000_000)
    assert stage.world.workers[name].epoch == worker.epoch + 1


def test_an_engine_that_owes_only_a_digest_is_noticed_too():
    stage = hurried(decode=2)
    stage.submit("r", prompt=12, max_tokens=2, verify=True)
    stage.until(lambda: stage.traced("published"))
    worker = stage.world.workers[stage.world.router.records["r"].fence.destination_id]
    stage.until(lambda: len(stage.tokens()) == 1)
    submit = worker.engine.submit
    worker.engine.submit = lambda order: None if isinstance(order, DigestKV) else submit(order)
    stage.finish()
    assert not worker.alive
    assert stage.tokens() == stage.truth()


def test_an_engine_that_works_is_left_alone_however_slow_it_is():
    stage = hurried()
    stage.submit("r", prompt=20, max_tokens=30)
    stage.until(lambda: stage.tokens())
    stage.destination.slowness = 50
    stage.finish_right()
    assert [worker.epoch for worker in stage.world.workers.values()] == [1, 1]


def test_a_stream_whose_worker_claims_more_than_it_sends_starts_another_attempt():
    stage = hurried(decode=2)
    stage.submit("r", prompt=12, max_tokens=6)
    stage.until(lambda: len(stage.tokens()) >= 2)
    fence = stage.world.router.records["r"].fence
    worker = stage.world.workers[fence.destination_id]
    sequence = worker.node.decode.live[fence.transfer_id]
    stage.lose = lambda number, sender, receiver, message: sender == worker.worker_id
    usage = Usage(prompt_tokens=12, completion_tokens=len(sequence.outputs) + 5)
    lie = Done(fence=fence, finish_reason="length", usage=usage)
    stage.tell_router(worker.worker_id, lie)
    stage.until(lambda: stage.world.router.records["r"].generation > 1)
    stage.lose = lambda *_: False
    stage.finish_right()
    assert "decode_stalled" in [t.data.get("reason") for _, _, t in stage.traced("attempt_failed")]


def test_a_started_request_that_nobody_has_room_for_ends_in_bounded_time():
    """Every denial keeps the deadline that its last real attempt set; later requests get on."""
    stage = Stage(decode=2, ttft_budget=5000)
    stage.submit("r", prompt=12, max_tokens=20)
    stage.until(lambda: stage.tokens())
    fence = stage.world.router.records["r"].fence
    began_us = stage.now_us
    stage.world.workers.pop(fence.destination_id).crash()

    def deny(number, sender, receiver, message):
        if isinstance(message, Reserve) and message.fence.request_id == "r":
            denial = Denied(fence=message.fence, reason="no_kv_capacity", transient=True)
            stage.world.timeline.after(1000, lambda: stage.tell_router(receiver, denial))
            return True
        return False

    stage.lose = deny
    stage.world.feed_router(WorkerLost(worker_id=fence.destination_id, epoch=1))
    stage.until(lambda: stage.world.end_of("r"))
    end = stage.end()
    assert isinstance(end, Failed) and end.code == "queue_timeout"
    assert stage.now_us - began_us < 6_000_000
    assert stage.tokens() == stage.truth()[: len(stage.tokens())]
    stage.submit("s", prompt=9)
    stage.until(lambda: stage.world.end_of("s"))
    assert isinstance(stage.end("s"), Finished)


def test_a_stream_older_than_the_budget_of_a_first_token_survives_its_worker():
    """Its wait for another route counts from the loss, not from its arrival."""
    stage = Stage(decode=2, ttft_budget=1000)
    stage.submit("r", prompt=12, max_tokens=20)
    stage.until(lambda: stage.tokens())
    fence = stage.world.router.records["r"].fence
    stage.world.workers[fence.destination_id].slowness = 2000
    stage.run_for(1_500_000)
    assert 1 < len(stage.tokens()) < 20
    stage.crash(stage.world.workers[fence.destination_id])
    stage.finish_right()
