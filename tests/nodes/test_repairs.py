"""Lost, late and repeated words between router and workers, each repaired without a trace."""

import msgspec

from baton.config import RouterConfig, WorkerConfig
from baton.core.messages import (
    Accepted,
    Cancel,
    Denied,
    PeerDown,
    PeerUp,
    Prefill,
    Reserve,
    Reserved,
)
from tests.stage import Stage, uneven_plan


def streaming(*roles: str) -> Stage:
    """A request of thirty tokens, four of which the client has."""
    stage = Stage(uneven_plan(*roles))
    stage.submit("r", 20, max_tokens=30)
    stage.until(lambda: len(stage.tokens()) > 3)
    assert stage.destination.node.decode.sequences(), "not a moment amid the stream"
    return stage


def test_a_reserve_repeated_after_publication_reserves_nothing():
    stage = streaming()
    (reserve,) = stage.kinds(Reserve)
    stage.hand("decode-1", reserve)
    assert len(stage.kinds(Reserved)) == 1
    stage.serve()
    stage.assert_right()
    stage.settle()


def test_a_denial_that_comes_too_late_does_not_end_a_stream():
    stage = streaming()
    fence = stage.world.router.records["r"].fence
    for reason in ("no_kv_capacity", "prompt_exceeds_pool"):
        stage.tell_router("decode-1", Denied(fence=fence, reason=reason, transient=True))
    assert stage.world.router.records["r"].fence == fence
    stage.serve()
    stage.assert_right()


def test_a_full_worker_is_asked_again_only_after_news_from_it():
    worker = WorkerConfig(block_size=4, max_batch_tokens=16, max_reservations=1)
    stage = Stage(uneven_plan(worker=worker))
    for number in range(6):
        stage.submit(f"r{number}", [number] * 24)
    stage.serve()
    # Six are sent together, then whoever waits is sent again when one has ended: 5+4+3+2+1.
    assert 0 < stage.world.router.counters["denied_reservations"] <= 15


def test_a_colocated_reservation_without_a_prefill_expires():
    stage = Stage(uneven_plan("mixed", router=RouterConfig(attempt_timeout_ms=2000)))
    # No cancel arrives either: the lease alone ends the last of them.
    stage.lose = lambda n, s, r, m: isinstance(m, Prefill | Cancel)
    stage.submit("r", 20)
    stage.serve()
    assert stage.destination.node.destination.incoming
    stage.settle()


def test_lost_news_of_peers_is_repeated_by_heartbeats():
    lost = []
    stage = Stage(
        uneven_plan(),
        lose=lambda n, s, r, m: (
            isinstance(m, PeerUp | PeerDown) and len(lost) < 2 and not lost.append(m)
        ),
    )
    stage.settle(1_000_000)
    assert len(lost) == 2
    assert stage.destination.node.context.peers["prefill-0"].epoch == 1
    assert stage.source.node.context.peers["decode-1"].epoch == 1
    stage.submit("r", 20)
    stage.serve()
    stage.assert_right()


def test_a_lost_word_of_a_death_ends_the_quarantine_later():
    stage = Stage(uneven_plan())
    stage.submit("r", 60)
    stage.until(lambda: stage.traced("prefill_started"))
    stage.lose = lambda n, s, r, m: isinstance(m, PeerDown)
    stage.world.crash("prefill-0", noticed_after_us=0, down_us=30_000_000)
    pool = stage.destination.node.context.memory.pool
    stage.until(lambda: pool.num_quarantined > 0)
    stage.lose = lambda *_: False
    stage.run_for(2_000_000)
    assert pool.num_quarantined == 0 and "prefill-0" not in stage.world.workers
    stage.serve()
    stage.assert_right()
    stage.settle()


def test_a_cancel_of_another_reservation_leaves_the_stream_alone():
    stage = streaming()
    fence = stage.world.router.records["r"].fence
    other = msgspec.structs.replace(fence, reservation_id=fence.reservation_id + 1)
    stage.hand("decode-1", Cancel(fence=other, reason="superseded"))
    stage.serve()
    stage.assert_right()


def test_a_prefill_repeated_after_the_handover_is_accepted_and_changes_nothing():
    for roles in (("prefill", "decode"), ("mixed",)):
        stage = streaming(*roles)
        prefill = stage.kinds(Prefill)[0]
        before = len(stage.kinds(Accepted))
        for _ in range(3):
            stage.hand(stage.source.worker_id, prefill)
        assert len(stage.kinds(Accepted)) == before + 3
        assert not stage.kinds(Denied)
        stage.serve()
        stage.assert_right()
        assert not any(name.startswith("fallback") for name in stage.world.router.counters)
        stage.settle()
