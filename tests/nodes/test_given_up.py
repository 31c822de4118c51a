"""A source that counts as lost and runs on: what it may still write into is nobody else's."""

from baton.core.messages import AbortTransfer, PeerDown, TransferQuiesced
from tests.stage import Stage, uneven_plan

LATE_US = 400_000
"""How long the one copy takes that is on its way when its source is given up."""


def troubled(**lost: int) -> Stage:
    """One of two sources has a copy under way and is given up."""
    stage = Stage(uneven_plan("prefill", "prefill", "decode", transfer={"retry_ms": 50}))
    stage.submit("r", 20, max_tokens=3)
    stage.until(lambda: stage.traced("access_granted"))
    stage.hit_chunk(1, "late", LATE_US)
    stage.until(lambda: stage.mover.plane.num_moves)
    stage.lost = stage.mover
    stage.world.give_up(stage.mover.worker_id, **{"runs_on_us": 10**9, "down_us": 10**9, **lost})
    return stage


def quarantined(stage: Stage) -> int:
    (decode,) = (w for w in stage.world.workers.values() if w.worker_id.startswith("decode"))
    return decode.node.context.memory.pool.num_quarantined


def test_the_request_goes_on_elsewhere_at_once_and_the_late_write_lands_in_quarantine():
    stage = troubled()
    began_us = stage.now_us
    stage.serve()  # the checkers see the late write: it must be into blocks that are set aside
    stage.assert_right()
    assert stage.now_us - began_us < LATE_US, "nobody waited for the source"
    assert quarantined(stage) == 5
    assert stage.world.marks()["unproven_sources"] == 1


def test_its_own_word_that_it_is_quiet_ends_the_quarantine():
    stage = troubled()
    stage.serve()
    assert stage.kinds(AbortTransfer), "it is asked, although it counts as lost"
    assert not stage.kinds(TransferQuiesced)
    stage.run_for(2 * LATE_US)
    assert len(stage.kinds(TransferQuiesced)) >= 1
    assert quarantined(stage) == 0


def test_the_end_of_its_process_ends_the_quarantine_and_the_next_life_does_not():
    stage = troubled(down_us=20_000)
    stage.lose = lambda number, sender, receiver, message: sender == stage.lost.worker_id
    stage.serve()
    stage.run_for(5 * LATE_US)
    assert stage.world.workers[stage.lost.worker_id].epoch == stage.lost.epoch + 1
    assert quarantined(stage) == 5, "a newer life proves nothing of the older one"
    stage.world.crash_given_up(stage.lost)
    stage.run_for(10_000)
    assert quarantined(stage) == 0


def test_a_newer_life_ends_no_quarantine_where_nothing_was_heard_of_the_older_ones_end():
    stage = Stage(uneven_plan("prefill", "prefill", "decode", transfer={"retry_ms": 50}))
    stage.lose = lambda number, sender, receiver, message: isinstance(
        message, PeerDown | TransferQuiesced
    )
    stage.submit("r", 20, max_tokens=3)
    stage.until(lambda: stage.traced("access_granted"))
    stage.hit_chunk(1, "late", LATE_US)
    stage.until(lambda: stage.mover.plane.num_moves)
    stage.world.give_up(stage.mover.worker_id, runs_on_us=10**9, down_us=1_000)
    stage.serve()
    stage.run_for(3 * LATE_US)
    assert quarantined(stage) == 5


def test_the_word_that_it_has_ended_is_said_again_when_it_was_lost():
    stage = troubled()
    stage.lose = lambda number, sender, receiver, message: isinstance(
        message, PeerDown | TransferQuiesced
    )
    stage.world.crash_given_up(stage.lost)
    stage.serve()
    stage.lose = lambda number, sender, receiver, message: isinstance(message, TransferQuiesced)
    stage.run_for(2_000_000)
    assert quarantined(stage) == 0


def test_one_that_was_never_let_in_holds_nothing():
    stage = Stage(uneven_plan("prefill", "prefill", "decode"))
    stage.submit("r", 20, max_tokens=3)
    stage.until(lambda: stage.traced("reserved"))
    stage.world.give_up(
        stage.world.router.records["r"].fence.source_id, runs_on_us=10**9, down_us=10**9
    )
    stage.serve()
    stage.assert_right()
    assert quarantined(stage) == 0


def test_what_was_published_outlives_a_source_that_is_given_up():
    stage = Stage(uneven_plan())
    stage.submit("r", 20, max_tokens=20)
    stage.until(lambda: len(stage.tokens()) > 3)
    stage.world.give_up("prefill-0", runs_on_us=10**9, down_us=10**9)
    stage.serve()
    stage.assert_right()
    assert stage.world.router.counters["fallback_recompute"] == 0
