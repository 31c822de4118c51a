"""Lost, late and repeated words between router and workers, each repaired without a trace."""

import msgspec

from baton.config import RouterConfig, TransferConfig, WorkerConfig
from baton.core import events
from baton.core.messages import (
    Accepted,
    Cancel,
    Denied,
    Envelope,
    PeerDown,
    PeerUp,
    Prefill,
    Reserve,
    Reserved,
)
from tests.nodes.cluster import ROUTER, Cluster, reference


def ready(cluster: Cluster) -> Cluster:
    cluster.run(lambda: not cluster.router.missing(cluster.now_us))
    return cluster


def sent(cluster: Cluster, kind: type, to: str | None = None) -> list:
    return [m for _, t, m in cluster.sent if isinstance(m, kind) and to in (None, t)]


def test_a_reserve_repeated_after_publication_reserves_nothing():
    cluster = ready(Cluster())
    cluster.submit("r", list(range(20)), max_tokens=30)
    cluster.run(lambda: len(cluster.text("r")) > 3)
    (reserve,) = sent(cluster, Reserve)
    envelope = Envelope(sender_id=ROUTER, sender_epoch=0, message=reserve)
    cluster.feed("decode-1", envelope)
    assert len(sent(cluster, Reserved)) == 1
    cluster.run()
    assert cluster.text("r") == reference(list(range(20)), max_tokens=30)
    cluster.settle()
    cluster.assert_nothing_held()


def test_a_denial_that_comes_too_late_does_not_end_a_stream():
    cluster = ready(Cluster())
    cluster.submit("r", list(range(20)), max_tokens=30)
    cluster.run(lambda: len(cluster.text("r")) > 3)
    fence = cluster.router.records["r"].fence
    for reason in ("no_kv_capacity", "prompt_exceeds_pool"):
        denied = Denied(fence=fence, reason=reason, transient=True)
        envelope = Envelope(sender_id="decode-1", sender_epoch=1, message=denied)
        cluster.feed_router(events.Received(envelope=envelope))
    cluster.run()
    assert cluster.text("r") == reference(list(range(20)), max_tokens=30)


def test_a_full_worker_is_asked_again_only_after_news_from_it():
    worker = WorkerConfig(block_size=4, max_batch_tokens=16, max_reservations=1)
    cluster = ready(Cluster(worker=worker))
    for number in range(6):
        cluster.submit(f"r{number}", [number] * 24, max_tokens=4)
    cluster.run()
    # Six are sent together, then whoever waits is sent again when one has ended: 5+4+3+2+1.
    assert 0 < cluster.router.counters["denied_reservations"] <= 15


def test_a_colocated_reservation_without_a_prefill_expires():
    router = RouterConfig(attempt_timeout_ms=2000)
    cluster = ready(Cluster(("mixed",), router=router))
    cluster.drop = lambda sender, receiver, message: isinstance(message, Prefill)
    cluster.submit("r", list(range(20)))
    cluster.run()
    cluster.drop = lambda *_: False
    cluster.settle()
    cluster.assert_nothing_held()


def test_lost_news_of_peers_is_repeated_by_heartbeats():
    cluster = Cluster(transfer=TransferConfig(chunk_nbytes=128, credit_nbytes=256))
    lost = []
    cluster.drop = lambda s, r, m: (
        isinstance(m, PeerUp | PeerDown) and len(lost) < 2 and not lost.append(m)
    )
    ready(cluster)
    cluster.settle(1_000_000)
    assert len(lost) == 2
    assert cluster.hosts["decode-1"].node.context.peers["prefill-0"].epoch == 1
    assert cluster.hosts["prefill-0"].node.context.peers["decode-1"].epoch == 1
    cluster.submit("r", list(range(20)))
    cluster.run()
    assert cluster.text("r") == reference(list(range(20)))


def test_a_lost_word_of_a_death_ends_the_quarantine_later():
    cluster = ready(Cluster())
    cluster.submit("r", list(range(60)))
    cluster.run(lambda: any(t.name == "prefill_started" for t in cluster.traces))
    cluster.drop = lambda s, r, m: isinstance(m, PeerDown)
    host = cluster.hosts["prefill-0"]
    cluster.kill("prefill-0")
    pool = cluster.hosts["decode-1"].node.context.memory.pool
    cluster.run(lambda: pool.num_quarantined > 0)
    cluster.drop = lambda *_: False
    cluster.settle(2_000_000)
    assert pool.num_quarantined == 0
    cluster.restart("prefill-0", host)
    cluster.run()
    assert cluster.text("r") == reference(list(range(60)))
    cluster.settle()
    cluster.assert_nothing_held()


def test_a_cancel_of_another_reservation_leaves_the_stream_alone():
    cluster = ready(Cluster())
    cluster.submit("r", list(range(20)), max_tokens=30)
    cluster.run(lambda: len(cluster.text("r")) > 3)
    fence = cluster.router.records["r"].fence
    other = msgspec.structs.replace(fence, reservation_id=fence.reservation_id + 1)
    message = Cancel(fence=other, reason="superseded")
    cluster.feed("decode-1", Envelope(sender_id=ROUTER, sender_epoch=0, message=message))
    cluster.run()
    assert cluster.text("r") == reference(list(range(20)), max_tokens=30)


def test_a_prefill_repeated_after_the_handover_is_accepted_and_changes_nothing():
    for roles, worker in ((("prefill", "decode"), "prefill-0"), (("mixed",), "mixed-0")):
        cluster = ready(Cluster(roles))
        cluster.submit("r", list(range(20)), max_tokens=30)
        cluster.run(lambda cluster=cluster: len(cluster.text("r")) > 3)
        prefill = sent(cluster, Prefill)[0]
        before = len(sent(cluster, Accepted))
        for _ in range(3):
            cluster.feed(worker, Envelope(sender_id=ROUTER, sender_epoch=0, message=prefill))
        assert len(sent(cluster, Accepted)) == before + 3
        assert not sent(cluster, Denied)
        cluster.run()
        assert cluster.text("r") == reference(list(range(20)), max_tokens=30)
        assert not any(name.startswith("fallback") for name in cluster.router.counters)
        cluster.settle()
        cluster.assert_nothing_held()
