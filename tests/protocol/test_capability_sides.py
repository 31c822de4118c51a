"""What each side of a handoff does before, with and without the right to move its bytes."""

import pytest

from baton.core.capability import Region
from baton.core.effects import DigestChunk, MoveChunk
from baton.core.events import IoQuiesced, Tick
from baton.core.ids import Direction
from baton.core.messages import (
    Aborted,
    AbortTransfer,
    Accepted,
    Authorized,
    ChunksReady,
    Denied,
    Present,
    RevokeRoutes,
    SourceFailed,
    TransferQuiesced,
)
from tests.protocol.destination_worker import DestinationWorker
from tests.protocol.handoff import FENCE, GRANT, capability, replace
from tests.protocol.source_worker import PREFILL, SourceWorker

CHANGES = {
    "ttl": lambda grant: {"ttl_us": 0},
    "tenant": lambda grant: {"fence": replace(grant.fence, tenant_id="t2")},
    "source": lambda grant: {"fence": replace(grant.fence, source_epoch=4)},
    "destination": lambda grant: {"fence": replace(grant.fence, destination_epoch=8)},
    "transfer": lambda grant: {"fence": replace(grant.fence, reservation_id=12)},
    "attempt": lambda grant: {"fence": replace(grant.fence, attempt=9)},
    "route_epoch": lambda grant: {"route_epoch": 9},
    "abi": lambda grant: {"abi_digest": "0" * 32},
    "direction": lambda grant: {"direction": Direction.PULL},
    "regions": lambda grant: {"regions": ()},
    "bytes": lambda grant: {"max_nbytes": 1},
}


def authorized(worker: DestinationWorker) -> int:
    return sum(isinstance(message, Authorized) for message in worker.sent("p0"))


def denials(worker: SourceWorker) -> list[str]:
    return [m.reason for m in worker.sent("router") if isinstance(m, Denied)]


# -- destination -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_capability_ends_the_transfer_before_a_byte(name):
    worker = DestinationWorker(authorized=False)
    wrong = capability(worker.grant, **CHANGES[name](worker.grant))
    worker.present(wrong)
    assert worker.abort_reason == f"capability_{name}"
    assert worker.counters[f"capability_denied_{name}"] == 1
    assert authorized(worker) == 0 and worker.node.context.gate.num_nonces == 0
    worker.present()
    assert authorized(worker) == 0, "an honest one after a wrong one comes too late"


def test_a_changed_capability_is_forged():
    worker = DestinationWorker(authorized=False)
    honest = capability(worker.grant)
    wider = replace(honest.capability, max_nbytes=honest.capability.max_nbytes * 2)
    worker.present(replace(honest, capability=wider))
    assert worker.abort_reason == "capability_signature"


def test_a_repeated_presentation_is_answered_again_and_spent_once():
    worker = DestinationWorker(authorized=False)
    for count in (1, 2, 3):
        worker.present()
        assert authorized(worker) == count
    assert worker.node.context.gate.num_nonces == 1
    assert worker.counters["duplicate_messages"] == 2
    worker.deliver_all()
    worker.seal()
    assert worker.is_published
    worker.present()
    assert authorized(worker) == 3, "after publication nobody waits for it"
    assert not [m for m in worker.sent("p0") if isinstance(m, AbortTransfer)]


def test_another_capability_for_an_authorized_transfer_ends_it():
    worker = DestinationWorker()
    worker.present(capability(worker.grant, nonce=2))
    assert worker.abort_reason == "capability_second"


def test_a_capability_spent_on_one_reservation_does_not_serve_another():
    worker = DestinationWorker(authorized=False)
    first = capability(worker.grant)
    worker.present(first)
    fence = replace(worker.grant.fence, generation=4, attempt=3, reservation_id=0)
    worker.grant = worker.reserve(fence)
    worker.effects.clear()
    worker.present(first)
    assert authorized(worker) == 0
    assert worker.abort_reason == "capability_transfer"


def test_a_presentation_of_what_is_not_reserved_makes_the_source_let_go():
    worker = DestinationWorker(authorized=False)
    stranger = replace(worker.grant.fence, request_id="r9")
    worker.from_source(Present(fence=stranger, capability=capability(worker.grant)))
    answers = [m for m in worker.sent("p0") if isinstance(m, AbortTransfer)]
    assert [(m.fence, m.reason) for m in answers] == [(stranger, "not_reserved")]
    near = replace(worker.grant.fence, attempt=9)
    worker.from_source(Present(fence=near, capability=capability(worker.grant)))
    assert worker.counters["stale_messages"] == 2
    worker.present()
    assert authorized(worker) == 1, "the reservation is not spoiled by either"


def test_a_chunk_before_its_right_is_counted_and_ends_the_transfer_unread():
    worker = DestinationWorker(authorized=False)
    worker.arrive(worker.plan[0])
    assert worker.counters["unauthorized_chunks"] == 1
    assert worker.abort_reason == "unauthorized_chunk"
    assert worker.orders(DigestChunk) == []
    worker.arrive(worker.plan[1])
    assert worker.counters["unauthorized_chunks"] == 1 and worker.counters["stale_chunks"] == 1
    pool = worker.node.context.memory.pool
    assert pool.num_quarantined == 2, "whoever wrote may write again"
    worker.from_source(TransferQuiesced(fence=worker.grant.fence))
    worker.feed(IoQuiesced(reservation_id=worker.grant.fence.reservation_id))
    assert pool.num_free == pool.num_blocks


def offer(worker: DestinationWorker, *blocks: int) -> None:
    message = ChunksReady(fence=worker.grant.fence, chunk_ids=(0, 1), source_block_ids=blocks)
    worker.from_source(message)


def test_an_offer_before_its_right_is_counted_and_read_when_it_comes_again():
    worker = DestinationWorker(Direction.PULL, authorized=False)
    offer(worker, 7, 9)
    assert worker.orders(MoveChunk) == [] and worker.abort_reason == ""
    assert worker.counters["unauthorized_offers"] == 1
    worker.present()
    assert worker.orders(MoveChunk) == []
    offer(worker, 7, 9)
    assert worker.orders(MoveChunk) == [0, 1]


@pytest.mark.parametrize("blocks", [(7, 16), (-1, 7), (15, 1 << 40)])
def test_an_offer_outside_the_granted_regions_is_not_read(blocks):
    worker = DestinationWorker(Direction.PULL)
    offer(worker, *blocks)
    assert worker.orders(MoveChunk) == []
    assert worker.abort_reason == "capability_regions"
    assert worker.counters["capability_denied_regions"] == 1


def test_an_offer_must_stay_within_what_was_granted_of_the_source():
    worker = DestinationWorker(Direction.PULL, authorized=False)
    honest = capability(worker.grant)
    mine, _ = honest.capability.regions[0], honest.capability.regions[1]
    part = Region(worker_id="p0", worker_epoch=5, block_start=0, num_blocks=8)
    worker.present(capability(worker.grant, regions=(mine, part)))
    offer(worker, 6, 8)
    assert worker.abort_reason == "capability_regions"


def test_revoked_routes_end_what_is_not_published_and_refuse_what_comes_late():
    worker = DestinationWorker()
    worker.arrive(worker.plan[0])
    worker.from_router(RevokeRoutes(route_epoch=GRANT.route_epoch))
    assert worker.abort_reason == "", "this epoch is the floor itself"
    worker.from_router(RevokeRoutes(route_epoch=GRANT.route_epoch + 1))
    assert worker.abort_reason == "routes_revoked"
    assert worker.node.snapshot().revoked_below == GRANT.route_epoch + 1
    worker.from_source(TransferQuiesced(fence=worker.grant.fence))
    worker.feed(IoQuiesced(reservation_id=worker.grant.fence.reservation_id))
    ends = [m.reason for m in worker.sent("router") if isinstance(m, Aborted)]
    assert ends == ["routes_revoked"]
    worker.effects.clear()
    with pytest.raises(StopIteration):
        worker.reserve(replace(FENCE, generation=4, reservation_id=0))
    assert [m.reason for m in worker.sent("router") if isinstance(m, Denied)] == ["routes_revoked"]
    assert worker.node.context.memory.pool.num_used == 0


def test_only_the_router_revokes():
    worker = DestinationWorker()
    worker.from_source(RevokeRoutes(route_epoch=99))
    assert worker.node.context.gate.revoked_below == 0 and worker.abort_reason == ""
    assert worker.counters["unexpected_messages"] == 1


def test_what_is_published_survives_a_revocation():
    worker = DestinationWorker()
    worker.deliver_all()
    worker.seal()
    worker.from_router(RevokeRoutes(route_epoch=99))
    assert worker.is_published and worker.abort_reason == ""


# -- source ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHANGES)
def test_a_prefill_with_a_wrong_capability_is_denied_and_nothing_is_held(name):
    worker = SourceWorker()
    worker.from_router(replace(PREFILL, capability=capability(**CHANGES[name](GRANT))))
    assert denials(worker) == [f"capability_{name}"]
    assert worker.node.counters[f"capability_denied_{name}"] == 1
    assert worker.job is None and worker.num_batches() == 0
    worker.prefill()
    assert worker.job is not None, "its nonce was not spent by the wrong one"


def test_a_prefill_without_the_capability_that_it_needs_is_denied():
    worker = SourceWorker()
    worker.from_router(replace(PREFILL, capability=None))
    assert denials(worker) == ["capability_missing"]


def test_a_prefill_that_moves_nothing_needs_none():
    worker = SourceWorker(authorized=False)
    grant = replace(GRANT, token_start=8, block_ids=())
    worker.from_router(replace(PREFILL, grant=grant, capability=None))
    assert denials(worker) == []
    assert worker.job is not None and worker.job.is_authorized
    assert not [m for m in worker.sent("d0") if isinstance(m, Present)]


def test_the_right_is_presented_when_the_prefill_is_accepted_and_bytes_wait_for_the_answer():
    worker = SourceWorker(authorized=False)
    worker.prefill()
    assert worker.sent("d0") == [Present(fence=FENCE, capability=PREFILL.capability)]
    worker.computed()
    assert worker.writes() == []
    worker.from_destination(Authorized(fence=replace(FENCE, attempt=1)))
    assert worker.writes() == []
    worker.from_destination(Authorized(fence=FENCE))
    assert worker.writes() == [0, 1], "as credit allows"
    worker.from_destination(Authorized(fence=FENCE))
    assert worker.writes() == [0, 1]


def test_a_pull_source_sums_and_offers_nothing_before_the_answer():
    worker = SourceWorker(authorized=False)
    grant = replace(GRANT, direction=Direction.PULL)
    worker.from_router(replace(PREFILL, grant=grant, capability=capability(grant)))
    worker.computed()
    assert not [e for e in worker.effects if isinstance(e, DigestChunk)]
    worker.from_destination(Authorized(fence=FENCE))
    assert len([e for e in worker.effects if isinstance(e, DigestChunk)]) == 8


def test_an_unanswered_presentation_is_repeated():
    worker = SourceWorker(authorized=False)
    worker.prefill()
    for count in (1, 2, 3):
        presented = [m for m in worker.sent("d0") if isinstance(m, Present)]
        assert len(presented) == count
        worker.effects += worker.node.handle(Tick(), 1000 + count * 600_000)
    worker.from_destination(Authorized(fence=FENCE))
    worker.effects.clear()
    worker.effects += worker.node.handle(Tick(), 4_000_000)
    assert not [m for m in worker.sent("d0") if isinstance(m, Present)]


def test_a_repeated_prefill_spends_nothing_twice():
    worker = SourceWorker()
    for _ in range(3):
        worker.prefill()
    assert denials(worker) == []
    assert len([m for m in worker.sent("router") if isinstance(m, Accepted)]) == 3
    assert worker.node.context.gate.num_nonces == 1


def test_revoked_routes_end_a_running_job_and_refuse_a_late_prefill():
    worker = SourceWorker()
    worker.prefill()
    worker.computed()
    worker.from_router(RevokeRoutes(route_epoch=GRANT.route_epoch + 1))
    assert [m.reason for m in worker.sent("d0") if isinstance(m, SourceFailed)] == [
        "routes_revoked"
    ]
    worker.quiesced()
    assert worker.job is None and worker.node.context.memory.pool.num_used == 0
    other = replace(FENCE, request_id="r2")
    grant = replace(GRANT, fence=other)
    request = replace(PREFILL.request, request_id="r2")
    late = replace(PREFILL, fence=other, grant=grant, request=request)
    worker.from_router(replace(late, capability=capability(grant, nonce=2)))
    assert denials(worker) == ["capability_revoked"]
