"""Specification 0x06E: what the handoff of 0x06C must refuse, each through the production objects.

The clock is that of `test_transfer_protocol`: the last layer is ready at 86, all chunks are visible
at 116.
"""

import pytest

from baton.core.events import ChunkMoved, IoQuiesced
from baton.core.ids import Direction
from baton.core.machine import IllegalTransition
from baton.core.messages import Aborted, AbortTransfer, Cancel, CreditReturn, TransferQuiesced
from baton.protocol.source_copy import CopyState
from baton.protocol.transfer import TransferState
from tests.protocol import handoff
from tests.protocol.destination_worker import DestinationWorker
from tests.protocol.handoff import FENCE, KIB, checksum, replace
from tests.protocol.source_worker import SourceWorker
from tests.spec.test_transfer_protocol import READY, Run


def test_at_85_nothing_of_layer_3_was_sent_and_at_86_it_may_be():
    assert 3 not in [layer for layer, _ in Run(READY, window=8 * KIB).run(until=85).layer_of_send]
    assert 3 in [layer for layer, _ in Run(READY, window=8 * KIB).run(until=86).layer_of_send]


def test_a_manifest_of_seven_chunks_is_refused_when_all_eight_are_visible():
    run = Run(READY).run()
    manifest = handoff.seal(run.source)
    chunks = manifest.placement.chunks
    assert len(chunks) == 8 and run.destination.all_visible
    placement = replace(manifest.placement, chunks=chunks[:-1])
    run.destination.manifest = replace(manifest, placement=placement)
    assert run.destination.defect() == "chunk_set_mismatch"


def test_a_chunk_id_that_comes_again_with_other_bytes_ends_the_handoff():
    worker = DestinationWorker()
    worker.deliver_all()
    worker.arrive(worker.plan[5], checksum=checksum(5) ^ 1)
    worker.seal()
    assert not worker.is_published
    assert worker.abort_reason == "duplicate_with_other_bytes"


@pytest.mark.parametrize(
    "stale",
    [{"generation": 2}, {"source_epoch": 4}, {"destination_epoch": 6}],
    ids=["generation", "source epoch", "destination epoch"],
)
def test_a_stale_fence_with_valid_checksums_publishes_nothing(stale):
    worker = DestinationWorker()
    worker.deliver_all()
    honest = worker.manifest()
    old = replace(worker.grant.fence, **stale)
    request = replace(honest.request, fence=old)
    placement = replace(honest.placement, transfer_id=old.transfer_id)
    worker.seal(replace(honest, request=request, placement=placement), fence=old)
    assert not worker.is_published and worker.abort_reason in ("", "not_reserved")
    worker.seal(honest)
    assert worker.is_published


def test_a_published_handoff_cannot_be_aborted():
    transfer = handoff.complete_destination()
    transfer.validate()
    transfer.published()
    with pytest.raises(IllegalTransition, match="abort is not allowed in PUBLISHED"):
        transfer.abort("too late")
    assert transfer.state is TransferState.PUBLISHED


def test_whoever_wants_a_published_handoff_aborted_changes_nothing():
    worker = DestinationWorker()
    worker.deliver_all()
    worker.seal()
    fence = worker.grant.fence
    worker.from_source(TransferQuiesced(fence=fence))
    worker.feed(IoQuiesced(reservation_id=fence.reservation_id))
    assert worker.is_published
    assert worker.node.context.memory.pool.num_quarantined == 0
    assert not [m for m in worker.sent() if isinstance(m, Aborted | AbortTransfer)]


def test_an_abort_returns_a_pushed_credit_once_when_the_source_is_quiet():
    worker = SourceWorker()
    worker.prefill()
    worker.computed()
    job = worker.job
    assert job is not None and job.transfer is not None
    credits = job.transfer.credits
    assert credits.inflight_nbytes == credits.capacity_nbytes == 2 * KIB
    worker.from_destination(AbortTransfer(fence=FENCE, reason="x"))
    worker.from_destination(CreditReturn(fence=FENCE, chunk_ids=(0,)))
    assert credits.inflight_nbytes == 2 * KIB, "transport may still own the buffers"
    worker.quiesced()
    assert credits.inflight_nbytes == 0 and job.transfer.state is CopyState.FREED
    worker.from_destination(CreditReturn(fence=FENCE, chunk_ids=(1,)))
    worker.quiesced()
    assert credits.inflight_nbytes == 0
    assert [type(m) for m in worker.sent("d0")].count(TransferQuiesced) == 1


def test_an_abort_returns_a_readers_blocks_once_when_its_reads_are_over():
    worker = DestinationWorker(Direction.PULL)
    pool, fence = worker.node.context.memory.pool, worker.grant.fence
    worker.from_router(Cancel(fence=fence, reason="disconnect"))
    for chunk_id in (0, 1):  # what was on its way when the abort came
        late = ChunkMoved(
            reservation_id=fence.reservation_id,
            chunk_id=chunk_id,
            nbytes=KIB,
            checksum=checksum(chunk_id),
        )
        worker.feed(late)
    worker.from_source(TransferQuiesced(fence=fence))
    assert pool.num_quarantined == 2
    for _ in range(2):
        worker.feed(IoQuiesced(reservation_id=fence.reservation_id))
    assert (pool.num_quarantined, pool.num_free) == (0, pool.num_blocks)
    pool.check()
    ends = [m for m in worker.sent("router") if isinstance(m, Aborted)]
    assert [m.reason for m in ends] == ["disconnect"], "one terminal event"
