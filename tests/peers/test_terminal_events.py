"""Every transfer, attempt and request reaches an end, whichever word of it is lost."""

import pytest

from baton.core.delivery import Failed, Finished
from baton.core.messages import SourceFailed, TransferQuiesced
from tests.stage import MODES, Stage, each_loss, num_chunks

DIRECTIONS = ("push", "pull")


def abort_at_destination(stage: Stage) -> None:
    stage.hit_chunk(2, "corrupt")
    stage.submit()
    stage.until(lambda: stage.traced("aborting"))


def abort_at_source(stage: Stage) -> None:
    stage.hit_batch(stage.source)
    stage.submit()
    stage.until(lambda: stage.traced("source_aborting"))


def abort_on_both_sides(stage: Stage) -> None:
    stage.submit()
    stage.until(lambda: stage.traced("last_layer_ready"))
    stage.world.cancel("r", "disconnect")


def abort_by_the_router(stage: Stage) -> None:
    """The attempt takes too long: the router gives it up while both legs hold it."""
    stage.source.slowness = 1_000
    stage.submit()
    stage.until(lambda: stage.traced("attempt_failed"))
    stage.source.slowness = 1


ABORTS = [abort_at_destination, abort_at_source, abort_on_both_sides, abort_by_the_router]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("start", ABORTS)
def test_abort_without_terminal_event(start, direction):
    for stage in each_loss(start, direction=direction, attempt_timeout=200):
        stage.finish()
        pools = [w.node.context.memory.pool for w in stage.world.workers.values()]
        assert all(pool.num_used == pool.num_quarantined == 0 for pool in pools)
        if start is abort_on_both_sides:
            assert stage.end().finish_reason == "cancelled"
        else:
            stage.assert_right()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("start", [abort_at_destination, abort_at_source])
def test_abort_whose_every_answer_is_lost_for_a_while(start, direction):
    """No fixed number of repetitions is enough for ever; the answer comes when it can."""
    stage = Stage(direction=direction)
    start(stage)
    stage.lose = lambda n, s, r, m: isinstance(m, TransferQuiesced | SourceFailed)
    stage.run_for(3_000_000)
    pool = stage.destination.node.context.memory.pool
    assert pool.num_quarantined > 0, "nobody has said that the source is quiet"
    stage.lose = lambda *_: False
    stage.finish_right()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_completion_of_an_aborted_transfer_is_dropped_with_its_blocks(direction):
    """A copy that ends long after the abort still gives everything back, and changes nothing."""
    for number in range(1, num_chunks(direction=direction) + 1):
        stage = Stage(direction=direction)
        stage.hit_chunk(number, "late", 300_000)
        stage.submit()
        stage.until(lambda stage=stage, n=number: stage.mover.plane.num_moves == n)
        stage.world.cancel("r", "disconnect")
        stage.run_for(100_000)
        held = stage.destination.node.context.memory.pool.num_quarantined
        assert held > 0, "a write may still land"
        stage.finish()
        assert stage.end().finish_reason == "cancelled"
        stage.submit("next")
        stage.finish()
        stage.assert_right("next")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", ["fail", "corrupt"])
def test_completion_by_count_when_one_part_never_comes(direction, kind):
    """Whichever part fails, the failure is said and nothing waits for a number of parts."""
    for number in range(1, num_chunks(direction=direction) + 1):
        stage = Stage(direction=direction, lease=10_000)
        stage.hit_chunk(number, kind)
        stage.submit()
        start_us = stage.now_us
        stage.finish_right()
        ((failed_us, _, trace),) = stage.traced("attempt_failed")
        reason = "transfer_failed: injected fault" if kind == "fail" else "checksum_mismatch"
        assert trace.data["reason"] == reason
        assert failed_us - start_us < 10_000, "an explicit failure does not wait for a lease"


def test_completion_by_count_when_one_part_comes_twice():
    for number in range(1, num_chunks() + 1):
        stage = Stage(notify_us=400)
        stage.hit_chunk(number, "repeat", 450)
        stage.submit()
        stage.finish_right()
        counters = stage.destination.node.counters
        assert counters["duplicate_chunks"] + counters["stale_chunks"] == 1
        assert not stage.traced("aborting")


@pytest.mark.parametrize("mode", MODES)
def test_dispatch_that_is_lost(mode):
    """Any single word of a request, its dispatch included, may be lost."""
    for stage in each_loss(lambda stage: stage.submit(), **MODES[mode]):
        stage.finish_right()
        assert not any("fallback" in name for name in stage.world.router.counters)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_dispatch_that_arrives_twice(direction):
    calm = Stage(direction=direction)
    calm.submit()
    calm.finish_right()
    for number in range(len(calm.sent)):
        for delay_us in (0, 250, 5_000):
            stage = Stage(direction=direction)
            stage.delay_us = lambda *_, stage=stage, number=number, delay_us=delay_us: (
                (0, delay_us) if len(stage.sent) == number + 1 else (0,)
            )
            stage.submit()
            stage.finish_right()
            assert not any("fallback" in name for name in stage.world.router.counters)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("leg", ["source", "destination"])
def test_dispatch_to_a_worker_that_leaves(leg, direction):
    """A worker may go at any moment of a request: before it hears of it, in it, after it."""
    calm = Stage(direction=direction, prefill=2, decode=2)
    calm.submit()
    calm.finish_right()
    for number in range(len(calm.sent)):
        stage = Stage(direction=direction, prefill=2, decode=2)
        stage.submit()
        stage.until(lambda stage=stage, n=number: len(stage.sent) > n)
        stage.crash(getattr(stage, leg))
        stage.finish_right()


@pytest.mark.parametrize("leg", ["source", "destination"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_leg_that_waits_for_the_other_one(leg, direction):
    """One leg fails at once; the other learns it at once and not by its lease or a timeout."""
    stage = Stage(direction=direction, prefill=1, decode=2, lease=60_000, attempt_timeout=600_000)
    stage.submit()
    stage.until(lambda: stage.traced("prefill_started"))
    start_us = stage.now_us
    stage.crash(getattr(stage, leg))
    stage.until(lambda: stage.traced("attempt_failed"))
    failed_us = stage.now_us
    survivor = stage.destination if leg == "source" else stage.source
    stage.until(lambda: not (survivor.node.source.jobs or survivor.node.destination.leases))
    assert failed_us - start_us < 20_000
    stage.finish_right()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_result_of_one_leg_that_is_discarded(direction):
    """An engine failure at the source reaches the router by name, within milliseconds."""
    stage = Stage(direction=direction, lease=60_000)
    stage.hit_batch(stage.source)
    stage.submit()
    start_us = stage.now_us
    stage.finish_right()
    ((failed_us, _, trace),) = stage.traced("attempt_failed")
    assert trace.data["reason"] == "engine_error: injected fault"
    assert failed_us - start_us < 5_000


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_failure_without_a_typed_end(direction):
    """When every attempt fails the client gets one error with a code, a status and a reason."""
    for number in range(1, num_chunks(direction=direction) + 1):
        stage = Stage(direction=direction, attempts=1)
        stage.hit_chunk(number, "fail")
        stage.submit()
        stage.finish()
        end = stage.end()
        assert isinstance(end, Failed)
        assert (end.code, end.status) == ("attempts_exhausted", 503)
        assert "transfer_failed: injected fault" in end.message
        assert end.retry_after_s >= 1


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_stream_that_never_ends_after_its_worker_left(direction):
    """Whenever the decode worker dies, an end follows the last token, and the tokens are true."""
    for count in range(1, 6):
        stage = Stage(direction=direction)
        stage.submit(max_tokens=6)
        stage.until(lambda stage=stage, count=count: len(stage.tokens()) >= count)
        stage.crash(stage.destination)
        stage.finish_right()
        assert isinstance(stage.end(), Finished)
