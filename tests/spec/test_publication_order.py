"""Specification 0x06D and 0x06E: validate, publish, admit, then acknowledge; one cleanup path."""

from baton.core.effects import CancelIo, Send, Trace
from baton.core.events import IoQuiesced
from baton.core.messages import (
    Aborted,
    AbortTransfer,
    Published,
    Reserve,
    SourceRelease,
    TransferQuiesced,
)
from tests.protocol.destination_worker import DestinationWorker
from tests.protocol.handoff import REQUEST, replace


def names(worker: DestinationWorker) -> list[str]:
    """Traces and messages in the order in which the host sees them."""
    found = []
    for effect in worker.effects:
        if isinstance(effect, Trace):
            found.append(effect.name)
        elif isinstance(effect, Send):
            found.append(type(effect.message).__name__)
        else:
            found.append(type(effect).__name__)
    return found


def test_validate_publish_admit_acknowledge():
    worker = DestinationWorker()
    worker.deliver_all()
    worker.seal()
    gates = ["validated", "published", "admitted", "SourceRelease"]
    assert [name for name in names(worker) if name in gates] == gates


def test_the_source_hears_nothing_that_lets_it_go_before_publication():
    worker = DestinationWorker()
    worker.deliver_all()
    assert not [m for m in worker.sent("p0") if isinstance(m, SourceRelease)]
    worker.seal()
    release = [m for m in worker.sent("p0") if isinstance(m, SourceRelease)]
    assert [m.fence for m in release] == [worker.grant.fence], "under the same generation"


def test_credit_returns_at_visibility_chunk_by_chunk():
    worker = DestinationWorker()
    first, second, *_ = worker.plan
    worker.arrive(first)
    worker.arrive(second)
    assert "CreditReturn" not in names(worker), "received is not visible"
    worker.read_back(second)
    returned = [m for m in worker.sent("p0") if type(m).__name__ == "CreditReturn"]
    assert [m.chunk_ids for m in returned] == [(second.chunk_id,)]


def test_an_abort_keeps_blocks_until_both_sides_are_quiet_and_frees_them_once():
    worker = DestinationWorker()
    pool = worker.node.context.memory.pool
    worker.arrive(worker.plan[0])
    worker.seal(replace(worker.manifest(), num_cached_tokens=-1))
    worker.deliver_all()
    fence = worker.grant.fence
    assert worker.abort_reason == "cached_tokens"
    assert pool.num_quarantined == len(worker.grant.block_ids) == 2
    worker.from_source(TransferQuiesced(fence=fence))
    assert pool.num_quarantined == 2, "this side's own I/O is not quiet"
    worker.feed(IoQuiesced(reservation_id=fence.reservation_id))
    assert (pool.num_quarantined, pool.num_free) == (0, pool.num_blocks)
    worker.from_source(TransferQuiesced(fence=fence))
    worker.feed(IoQuiesced(reservation_id=fence.reservation_id))
    assert pool.num_free == pool.num_blocks
    pool.check()
    ends = [m for m in worker.sent("router") if isinstance(m, Aborted)]
    assert [m.reason for m in ends] == ["cached_tokens"], "one terminal event"


def test_an_abort_cancels_io_and_asks_the_source_in_that_order():
    worker = DestinationWorker()
    worker.arrive(worker.plan[0])
    worker.arrive(worker.plan[0], checksum=1)
    order = [e for e in worker.effects if isinstance(e, CancelIo) or _is_abort(e)]
    assert [type(e) for e in order] == [CancelIo, Send]


def _is_abort(effect: object) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, AbortTransfer)


def test_a_newer_generation_fences_the_older_handoff_with_valid_checksums():
    worker = DestinationWorker()
    worker.deliver_all()
    old, old_manifest = worker.grant.fence, worker.manifest()
    worker.from_router(
        Reserve(
            fence=replace(old, generation=4, attempt=3, reservation_id=0),
            request=REQUEST,
            output_token_ids=(),
            direction=worker.grant.direction,
            schedule=worker.grant.schedule,
            route_epoch=worker.grant.route_epoch,
        )
    )
    worker.seal(old_manifest, fence=old)
    assert not [m for m in worker.sent() if isinstance(m, Published)]
    assert worker.node.directory.lookup("r1", 3) is None
    assert worker.abort_reason == "superseded"


def test_a_reservation_is_no_permission_to_read():
    worker = DestinationWorker()
    assert worker.node.directory.lookup("r1", 3) is None
    assert not worker.node.decode.live and not worker.node.queue.running
