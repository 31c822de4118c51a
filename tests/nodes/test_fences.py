"""Who is heard: a word of another life, party, generation or reservation changes nothing."""

import msgspec
import pytest

from baton.core import effects, events
from baton.core.ids import Direction, Fence, Role, Schedule
from baton.core.messages import (
    Aborted,
    AbortTransfer,
    Accepted,
    Authorized,
    Cancel,
    CreditReturn,
    Denied,
    Done,
    DoneAck,
    Envelope,
    Load,
    Message,
    PeerUp,
    Present,
    Published,
    Renew,
    Reserve,
    Reserved,
    Resync,
    Seal,
    SourceFailed,
    SourceRelease,
    TokenRow,
    TokenRows,
    TransferQuiesced,
)
from baton.core.request import Request, SamplingParams, Token, Usage
from baton.core.work import BatchResult
from baton.nodes.context import ROUTER
from baton.nodes.record import RequestRecord
from tests.nodes.joining import hello, info, lone_router
from tests.protocol.destination_worker import DestinationWorker, peer
from tests.protocol.handoff import FENCE, REQUEST, capability, replace
from tests.protocol.source_worker import SourceWorker
from tests.stage import Stage, uneven_plan

# -- workers ---------------------------------------------------------------------------------------


def test_a_live_worker_that_is_no_party_cannot_release_a_copy():
    worker = SourceWorker()
    worker.from_router(PeerUp(info=peer("d1", 3)))
    worker.prefill()
    worker.computed()
    for number in range(8):
        chunk_id = worker.writes()[number]
        worker.moved(chunk_id)
        worker.from_destination(CreditReturn(fence=FENCE, chunk_ids=(chunk_id,)))
    worker.receive("d1", 3, SourceRelease(fence=FENCE))
    assert worker.job is not None
    worker.from_destination(SourceRelease(fence=FENCE))
    assert worker.job is None


def test_a_prefill_that_is_repeated_after_the_handover_is_accepted_again():
    worker = SourceWorker()
    worker.prefill()
    worker.computed()
    for number in range(8):
        worker.moved(worker.writes()[number])
        worker.from_destination(CreditReturn(fence=FENCE, chunk_ids=(worker.writes()[number],)))
    worker.from_destination(SourceRelease(fence=FENCE))
    assert worker.job is None
    worker.prefill()
    assert [type(m) for m in worker.sent("router")] == [Accepted, Accepted]


def reserve(fence: Fence) -> Reserve:
    return Reserve(
        fence=replace(fence, reservation_id=0),
        request=REQUEST,
        output_token_ids=(),
        direction=Direction.PUSH,
        schedule=Schedule.LAYER,
        route_epoch=2,
    )


@pytest.mark.parametrize("epoch", [6, 8])
def test_the_routers_word_to_another_life_of_a_worker_is_not_for_this_one(epoch):
    worker = DestinationWorker()
    asked = reserve(replace(FENCE, generation=4, destination_epoch=epoch))
    before = len(worker.sent())
    worker.from_router(asked)
    assert len(worker.sent()) == before and len(worker.node.destination.incoming) == 1
    assert worker.counters["stale_messages"] == 1


def test_a_word_about_another_reservation_of_the_same_generation_changes_nothing():
    worker = DestinationWorker(authorized=False)
    other = replace(worker.grant.fence, reservation_id=12)
    worker.from_source(SourceFailed(fence=other, reason="x"))
    worker.from_source(Present(fence=other, capability=capability(worker.grant)))
    assert worker.abort_reason == ""
    assert not [m for m in worker.sent() if isinstance(m, Authorized)]
    worker.present()
    worker.deliver_all()
    worker.seal()
    assert worker.is_published


def test_an_aborting_reservation_lets_nobody_in():
    worker = DestinationWorker(authorized=False)
    worker.from_router(Cancel(fence=worker.grant.fence, reason="disconnect"))
    worker.present()
    assert not [m for m in worker.sent() if isinstance(m, Authorized)]
    assert worker.node.context.gate.num_nonces == 0


def test_a_repeated_notification_does_not_stand_for_the_missing_chunk():
    worker = DestinationWorker()
    *seven, last = worker.plan
    for spec in seven:
        worker.arrive(spec)
        worker.read_back(spec)
    worker.arrive(seven[0])
    worker.seal()
    assert not worker.is_published and worker.abort_reason == ""
    worker.arrive(last)
    worker.read_back(last)
    assert worker.is_published


def test_a_reservation_that_arrives_after_its_cancel_is_not_opened():
    worker = DestinationWorker()
    late = replace(FENCE, generation=5, reservation_id=0)
    worker.from_router(Cancel(fence=late, reason="disconnect"))
    worker.from_router(reserve(late))
    denied = [m for m in worker.sent("router") if isinstance(m, Denied)]
    assert [m.reason for m in denied] == ["stale_generation"]
    assert late.transfer_id not in worker.node.destination.incoming


def test_a_seal_without_a_reservation_is_never_acknowledged_as_published():
    worker = DestinationWorker()
    fence, manifest = worker.grant.fence, worker.manifest()
    worker.from_router(Cancel(fence=fence, reason="disconnect"))
    worker.from_source(TransferQuiesced(fence=fence))
    worker.feed(events.IoQuiesced(reservation_id=fence.reservation_id))
    assert not worker.node.destination.incoming
    worker.seal(manifest, fence=fence)
    answers = [type(m) for m in worker.sent("p0")]
    assert answers[-1] is AbortTransfer and SourceRelease not in answers


def test_each_side_renews_the_others_lease_while_nothing_else_is_said():
    """A prompt may wait for its turn much longer than a lease."""
    source, destination = SourceWorker(), DestinationWorker()
    source.prefill()
    lease_us = destination.node.context.transfer.lease_ms * 1000
    for step in range(1, 9):
        now_us = step * lease_us // 2
        for node, other in ((source.node, destination), (destination.node, source)):
            found = node.handle(events.Tick(), now_us)
            renewals = [e.message for e in found if isinstance(getattr(e, "message", 0), Renew)]
            assert [len(m.fences) for m in renewals] == [1]
            sender = (node.context.worker_id, node.context.epoch)
            envelope = Envelope(
                sender_id=sender[0],
                sender_epoch=sender[1],
                message=Renew(fences=(other_fence(other),)),
            )
            other.node.handle(events.Received(envelope=envelope), now_us)
    assert source.job is not None and not source.job.is_aborting
    assert destination.node.destination.incoming[FENCE.transfer_id].transfer.abort_reason == ""


def other_fence(worker: SourceWorker | DestinationWorker) -> Fence:
    return FENCE if isinstance(worker, SourceWorker) else worker.grant.fence


def test_a_cancel_of_what_is_not_here_is_answered_all_the_same():
    worker = DestinationWorker()
    unknown = replace(FENCE, generation=5, reservation_id=0)
    worker.from_router(Cancel(fence=unknown, reason="disconnect"))
    assert worker.sent("router")[-1] == Aborted(fence=unknown, reason="disconnect")


def test_a_late_word_of_an_older_life_of_a_peer_changes_nothing():
    worker = DestinationWorker()
    worker.from_router(PeerUp(info=peer("p0", 4)))
    assert worker.node.context.peers["p0"].epoch == 5
    worker.deliver_all()
    worker.seal()
    assert worker.is_published


def test_a_resync_sends_every_token_from_the_asked_index_and_an_acknowledged_end_is_forgotten():
    worker = DestinationWorker()
    worker.deliver_all()
    worker.seal()
    fence = worker.grant.fence
    worker.from_router(Resync(fence=fence, next_index=0))
    sent = [m for m in worker.sent("router") if isinstance(m, TokenRows)]
    assert [[row.token.index for row in m.rows] for m in sent] == [[0], [0]]
    worker.from_router(Cancel(fence=fence, reason="stop"))
    batch = worker.node.queue.batch
    assert batch is not None
    worker.feed(events.BatchDone(result=BatchResult(batch_id=batch.batch_id)))
    assert fence.transfer_id in worker.node.decode.ended
    worker.from_router(DoneAck(fence=fence))
    assert not worker.node.decode.ended and not worker.node.decode.knows(fence.transfer_id)


def test_a_seal_and_an_abort_are_said_again_until_they_are_answered():
    """Leases would end both in the end, at the price of an attempt or of a long quarantine."""
    source, destination = SourceWorker(), DestinationWorker()
    source.prefill()
    source.computed()
    for number in range(8):
        source.moved(source.writes()[number])
        source.from_destination(CreditReturn(fence=FENCE, chunk_ids=(source.writes()[number],)))
    destination.from_router(Cancel(fence=destination.grant.fence, reason="disconnect"))
    retry_us = source.node.context.transfer.retry_ms * 1000
    for worker in (source, destination):
        for step in (1, 2):
            worker.effects += worker.node.handle(events.Tick(), 2000 + step * retry_us)
    assert [type(m) for m in source.sent("d0")].count(Seal) == 3
    assert [type(m) for m in destination.sent("p0")].count(AbortTransfer) == 3


def test_no_two_lives_of_a_worker_mint_the_same_reservation():
    stage, ids = Stage(), set()
    for epoch in (1, 2, 3):
        context = stage.destination.node.context
        assert context.epoch == epoch
        ids |= {context.mint_reservation_id() & ~0xFFFF_FFFF for _ in range(2)}
        stage.crash(stage.destination)
        stage.run_for(1_000_000)
    assert len(ids) == 3


# -- router ----------------------------------------------------------------------------------------

REQUESTED = Request(
    request_id="r", prompt_token_ids=(1, 2, 3), sampling=SamplingParams(max_tokens=8)
)
CURRENT = Fence(
    tenant_id="t",
    request_id="r",
    generation=3,
    attempt=2,
    source_id="p",
    source_epoch=1,
    destination_id="d",
    destination_epoch=2,
    reservation_id=7,
)
OTHERS = {
    "older generation": {"generation": 2},
    "newer generation": {"generation": 4},
    "source": {"source_id": "p2"},
    "source epoch": {"source_epoch": 9},
    "destination": {"destination_id": "d2"},
    "destination epoch": {"destination_epoch": 1},
    "reservation": {"reservation_id": 8},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_only_the_attempt_that_counts_is_heard(changes):
    record = RequestRecord(REQUESTED, 0, 1)
    assert not record.is_current(CURRENT), "nothing was tried yet"
    record.fence = CURRENT
    assert record.is_current(CURRENT)
    assert not record.is_current(msgspec.structs.replace(CURRENT, **changes))


class Serving:
    """A router that has just started the first attempt of request r on p and d."""

    def __init__(self) -> None:
        self.router = lone_router()
        hello(self.router, info("p", Role.PREFILL))
        hello(self.router, info("d", epoch=2))
        self.feed(events.Submitted(request=REQUESTED))
        self.record = self.router.records["r"]
        self.fence = self.record.fence

    def feed(self, event: events.Event) -> list[effects.Effect]:
        return self.router.handle(event, 5)

    def hear(self, message: Message, *, epoch: int = 2) -> list[tuple[str, Message]]:
        """A word of d, in one of its lives; what the router says to it."""
        envelope = Envelope(sender_id="d", sender_epoch=epoch, message=message)
        found = self.feed(events.Received(envelope=envelope))
        return [(e.to, e.message) for e in found if isinstance(e, effects.Send)]

    def publish(self) -> None:
        """The first attempt decodes from now on."""
        self.record.fence = msgspec.structs.replace(self.fence, reservation_id=7)
        self.record.machine.feed("grant")
        self.hear(Published(fence=self.record.fence, cached_tokens=0))


def rows(generation: int, token_id: int, index: int = 0) -> TokenRows:
    token = Token(index=index, token_id=token_id)
    return TokenRows(rows=(TokenRow(request_id="r", generation=generation, token=token),))


def test_tokens_of_another_generation_are_not_delivered():
    serving = Serving()
    serving.publish()
    for generation in (0, 2):
        serving.hear(rows(generation, token_id=9))
    assert serving.record.outputs == []
    assert serving.router.counters["stale_tokens"] == 2
    serving.hear(rows(1, token_id=5))
    assert [token.token_id for token in serving.record.outputs] == [5]


def test_a_dead_life_tells_the_router_nothing():
    serving = Serving()
    load = msgspec.structs.replace(DestinationWorker().node.snapshot(), version=99)
    serving.hear(Load(snapshot=load), epoch=1)
    assert serving.router.fleet.get("d").snapshot is None
    assert serving.router.counters["stale_messages"] == 1


def test_both_legs_hear_of_a_cancel():
    serving = Serving()
    found = serving.feed(events.Cancelled(request_id="r", reason="disconnect"))
    told = [e.to for e in found if isinstance(e, effects.Send) and isinstance(e.message, Cancel)]
    assert sorted(told) == ["d", "p"]


def test_a_superseded_attempt_is_told_to_let_go():
    serving = Serving()
    old = msgspec.structs.replace(serving.fence, generation=0, reservation_id=4)
    told = serving.hear(Published(fence=old, cached_tokens=0))
    assert sorted((to, type(m).__name__) for to, m in told) == [("d", "Cancel"), ("p", "Cancel")]
    done = Done(
        fence=old,
        finish_reason="length",
        usage=Usage(prompt_tokens=3, completion_tokens=1, cached_tokens=0),
        kv_digest="",
    )
    assert serving.hear(done) == [("d", DoneAck(fence=old))]


def test_what_nobody_has_answered_is_said_again_within_the_attempt():
    stage = Stage(uneven_plan())
    lost: list[Message] = []
    stage.lose = lambda n, sender, receiver, message: (
        sender == ROUTER
        and isinstance(message, Reserve)
        and len(lost) < 2
        and not lost.append(message)
    )
    stage.submit("r", 20)
    soon_us = stage.now_us + 3_000_000
    stage.until(lambda: stage.kinds(Reserved))
    assert stage.now_us < soon_us
    assert len(lost) == 2 and stage.world.router.records["r"].attempt == 1


def test_a_failed_source_is_avoided_by_the_next_attempt():
    stage = Stage(uneven_plan("prefill", "prefill", "decode"))
    records = stage.world.router.records
    stage.submit("r", 40)
    stage.until(lambda: records["r"].state == "PREFILLING")
    fence = records["r"].fence
    stage.hand("decode-2", SourceFailed(fence=fence, reason="x"), fence.source_id)
    stage.until(lambda: records["r"].attempt == 2)
    assert records["r"].fence.source_id not in ("", fence.source_id)
