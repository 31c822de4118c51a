"""A worker of several pipeline stages offers a region for each, and orders name both sides'."""

import numpy as np
import pytest
from msgspec.structs import replace

from baton.runtime.dataplane import Arena, DigestOrder, Finished, PlaneFault, Received
from baton.runtime.dataplane.checksum import checksum

from .harness import KIB, Worker, open_plane, order


class StagedWorker(Worker):
    """A worker whose memory is three arenas."""

    def __init__(self, worker_id: str, kind: str) -> None:
        self.worker_id = worker_id
        self.arena, *self.others = (Arena.create(worker_id, 64 * KIB, epoch=1) for _ in range(3))
        self.plane = open_plane(kind, timeout_ms=5_000)
        self.descriptor = self.plane.register(self.arena, stages=self.others)

    def memory(self, stage: int) -> np.ndarray:
        return [self.arena, *self.others][stage].buffer

    def close(self) -> None:
        super().close()
        for arena in self.others:
            arena.close()


@pytest.fixture
def staged(kind):
    """A worker of three stages and a peer of three."""
    made = [StagedWorker("near", kind), StagedWorker("far", kind)]
    made[0].plane.connect(made[1].descriptor)
    made[1].plane.connect(made[0].descriptor)
    yield made
    for worker in made:
        worker.close()


@pytest.mark.parametrize("direction", ["write", "read"])
@pytest.mark.parametrize(("near_stage", "far_stage"), [(0, 2), (1, 0), (2, 1), (2, 2)])
def test_bytes_go_from_stage_to_stage_and_nowhere_else(staged, near_stage, far_stage, direction):
    near, far = staged
    assert near.descriptor.sizes == (64 * KIB,) * 3
    sender, receiver = (near, far) if direction == "write" else (far, near)
    for stage in range(3):
        sender.memory(stage)[:] = np.arange(64 * KIB) % (251 - stage)
        receiver.memory(stage)[:] = 0
    put = replace(
        order(far.descriptor, [(256, 512, 4096)], direction=direction),
        local_stage=near_stage,
        remote_stage=far_stage,
    )
    near.plane.put(put)
    (done,) = near.take(1)
    assert isinstance(done, Finished) and done.error is None
    if direction == "write":
        assert isinstance(far.take(1)[0], Received)
    ends = {"near": (near_stage, 256), "far": (far_stage, 512)}
    (out_stage, out), (into_stage, into) = ends[sender.worker_id], ends[receiver.worker_id]
    sent = sender.memory(out_stage)[out : out + 4096]
    assert done.checksum == checksum([sent])
    assert np.array_equal(receiver.memory(into_stage)[into : into + 4096], sent)
    touched = [np.count_nonzero(receiver.memory(stage)) for stage in range(3)]
    assert [bool(count) for count in touched] == [stage == into_stage for stage in range(3)]
    assert touched[into_stage] <= 4096
    receiver.plane.digest(
        DigestOrder(reservation_id=1, chunk_id=1, runs=((into, 4096),), stage=into_stage)
    )
    assert receiver.take(1)[0].checksum == done.checksum


@pytest.mark.parametrize("sides", [(3, 0), (0, 3), (-1, 0)])
def test_a_stage_that_is_not_there_is_out_of_bounds(staged, sides):
    near, far = staged
    put = order(far.descriptor, [(0, 0, 16)])
    near.plane.put(replace(put, local_stage=sides[0], remote_stage=sides[1]))
    (done,) = near.take(1)
    assert done.error is PlaneFault.OUT_OF_BOUNDS and "is none of 3" in done.detail
    near.plane.digest(DigestOrder(reservation_id=1, chunk_id=1, runs=((0, 16),), stage=3))
    (done,) = near.take(1)
    assert done.error is PlaneFault.OUT_OF_BOUNDS
