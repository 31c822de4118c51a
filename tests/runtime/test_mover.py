"""An order that the plane cannot take fails by itself; the worker and its other orders go on."""

import asyncio

import pytest

from baton.core.effects import DigestChunk, MoveChunk
from baton.core.events import ChunkDigested, ChunkMoved, Event
from baton.core.layout import KVLayout
from baton.core.manifest import ChunkSpec
from baton.runtime.dataplane import Arena, ShmDataPlane
from baton.runtime.mover import ChunkMover
from baton.runtime.regions import PoolShape

LAYOUT = KVLayout(num_layers=1, num_kv_heads=1, head_dim=2, block_size=4)
NUM_BLOCKS = 8
CHUNK = ChunkSpec(
    chunk_id=3,
    layer_start=0,
    num_layers=1,
    block_start=0,
    num_blocks=1,
    nbytes=LAYOUT.layer_block_nbytes,
)
SECONDS = 5.0


@pytest.fixture
async def full():
    """A mover over a plane that takes no order more."""
    arena = Arena.create("w0", NUM_BLOCKS * LAYOUT.bytes_per_block, epoch=1)
    plane = ShmDataPlane(capacity=0)
    plane.register(arena)
    said = asyncio.Queue[Event]()
    yield (
        ChunkMover(plane, LAYOUT, NUM_BLOCKS, said.put_nowait, checksum=True, staging=None),
        said,
    )
    plane.close()
    arena.close()


async def test_a_move_beyond_the_capacity_is_a_failed_move(full):
    mover, said = full
    order = MoveChunk(
        peer_id="w1",
        peer_epoch=1,
        reservation_id=7,
        chunk=CHUNK,
        local_blocks=(1,),
        remote_blocks=(2,),
        write=True,
    )
    mover.move(order, PoolShape(LAYOUT, NUM_BLOCKS))
    moved = await asyncio.wait_for(said.get(), SECONDS)
    assert isinstance(moved, ChunkMoved)
    assert (moved.reservation_id, moved.chunk_id, moved.nbytes) == (7, 3, 0)
    assert "orders are outstanding" in moved.error


async def test_a_digest_beyond_the_capacity_is_a_failed_digest(full):
    mover, said = full
    mover.digest(DigestChunk(reservation_id=7, chunk=CHUNK, local_blocks=(1,), inward=True))
    digested = await asyncio.wait_for(said.get(), SECONDS)
    assert isinstance(digested, ChunkDigested)
    assert (digested.reservation_id, digested.chunk_id) == (7, 3)
    assert "orders are outstanding" in digested.error
