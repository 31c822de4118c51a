"""Pull: the destination reads what is announced, as its own credit allows, each chunk once."""

from baton.core.effects import MoveChunk
from baton.core.ids import Direction
from baton.core.messages import ChunksReady
from tests.protocol.destination_worker import DestinationWorker
from tests.protocol.handoff import KIB

SOURCE_BLOCKS = (7, 9)


def pulling() -> DestinationWorker:
    return DestinationWorker(Direction.PULL)


def announce(worker: DestinationWorker, *chunk_ids: int, blocks=SOURCE_BLOCKS) -> None:
    worker.from_source(
        ChunksReady(fence=worker.grant.fence, chunk_ids=chunk_ids, source_block_ids=blocks)
    )


def finish_read(worker: DestinationWorker, chunk_id: int) -> None:
    spec = worker.plan[chunk_id]
    worker.moved(spec)
    worker.read_back(spec)


def test_reads_are_bounded_by_the_readers_credit_and_cover_the_plan():
    worker = pulling()
    announce(worker, *range(8))
    done = 0
    while done < len(worker.orders(MoveChunk)):
        assert len(worker.orders(MoveChunk)) - done <= 2, "2 KiB of credit"
        finish_read(worker, worker.orders(MoveChunk)[done])
        done += 1
    assert worker.orders(MoveChunk) == list(range(8))
    assert not worker.is_published
    worker.seal()
    assert worker.is_published
    kinds = [type(message).__name__ for message in worker.sent("p0")]
    assert kinds == ["SourceRelease"], "a pull returns no credit to its source"


def test_a_read_names_the_blocks_of_both_sides():
    worker = pulling()
    announce(worker, 0, 4)
    reads = [effect for effect in worker.effects if isinstance(effect, MoveChunk)]
    assert [(r.local_blocks, r.remote_blocks) for r in reads] == [
        ((worker.grant.block_ids[spec.block_start],), (SOURCE_BLOCKS[spec.block_start],))
        for spec in (worker.plan[0], worker.plan[4])
    ]
    assert not any(read.write for read in reads)


def test_a_repeated_announcement_orders_nothing_again():
    worker = pulling()
    announce(worker, 0)
    announce(worker, 0, 1)
    announce(worker, 1, 0, 99)
    assert worker.orders(MoveChunk) == [0, 1]


def test_nothing_is_read_before_it_is_announced():
    worker = pulling()
    assert worker.orders(MoveChunk) == []
    worker.seal()
    assert worker.orders(MoveChunk) == [] and not worker.is_published


def test_a_wrong_number_of_source_blocks_aborts():
    worker = pulling()
    announce(worker, 0, blocks=(7,))
    assert worker.abort_reason == "source_block_count_mismatch"
    assert worker.orders(MoveChunk) == []


def test_an_announcement_in_a_push_aborts():
    worker = DestinationWorker()
    announce(worker, 0)
    assert worker.abort_reason == "direction_mismatch"


def test_a_failed_read_aborts_and_later_ones_are_stale():
    worker = pulling()
    announce(worker, *range(8))
    worker.moved(worker.plan[0], error="peer gone")
    assert worker.abort_reason == "transfer_failed: peer gone"
    worker.moved(worker.plan[1])
    assert worker.counters["stale_chunks"] == 1
    assert worker.orders(MoveChunk) == [0, 1]


def test_bytes_that_differ_from_the_sources_are_refused():
    worker = pulling()
    announce(worker, *range(8))
    for number in range(8):
        spec = worker.plan[worker.orders(MoveChunk)[number]]
        worker.moved(spec)
        worker.read_back(spec, checksum=1 if number == 5 else 0x1000 + spec.chunk_id)
    worker.seal()
    assert worker.abort_reason == "checksum_mismatch"
    assert not worker.is_published


def test_a_put_into_a_pull_reservation_is_not_taken():
    worker = pulling()
    worker.arrive(worker.plan[0])
    worker.read_back(worker.plan[0])
    assert worker.node.destination.incoming["r1.3"].transfer.num_visible == 0


def test_credit_is_never_above_its_capacity():
    worker = pulling()
    announce(worker, *range(8))
    window = worker.node.destination.incoming["r1.3"].window
    assert window.inflight_nbytes == window.capacity_nbytes == 2 * KIB
    finish_read(worker, 0)
    assert window.peak_nbytes == 2 * KIB
