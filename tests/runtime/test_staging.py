"""Private pools behind a mirror: bytes reach the other side, a cancelled chunk is left alone."""

import asyncio
import threading

import pytest
import torch

from baton.core.layout import KVLayout
from baton.core.manifest import ChunkSpec
from baton.engine.pool import Pool
from baton.engine.staging import Staging
from baton.runtime.staging_thread import StagingThread

LAYOUT = KVLayout(num_layers=3, num_kv_heads=1, head_dim=2, block_size=4)


def spec(layer_start: int = 0, num_layers: int = 3) -> ChunkSpec:
    return ChunkSpec(
        chunk_id=0, layer_start=layer_start, num_layers=num_layers, block_start=0, num_blocks=2,
        nbytes=1,
    )  # fmt: skip


def test_copies_touch_only_the_named_layers_and_blocks():
    pool = Pool(LAYOUT, 6)
    pool.tensor.normal_()
    mirror = bytearray(6 * LAYOUT.bytes_per_block)
    staging = Staging(pool, memoryview(mirror))
    staging.copy_out(range(1, 3), (4, 5, 1))
    seen = torch.frombuffer(mirror, dtype=torch.float32).view(pool.tensor.shape)
    for layer in range(3):
        for block in range(6):
            moved = layer >= 1 and block in (1, 4, 5)
            expected = pool.tensor[layer, block] if moved else torch.zeros_like(seen[0, 0])
            assert torch.equal(seen[layer, block], expected), (layer, block)
    before = pool.tensor.clone()
    seen.fill_(7)
    staging.copy_in(range(0, 1), (2,))
    assert (pool.tensor[0, 2] == 7).all()
    before[0, 2] = 7
    assert torch.equal(pool.tensor, before)


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[str, range, tuple[int, ...]]] = []
        self.gate = threading.Event()
        self.failure: Exception | None = None

    def copy_out(self, layers, blocks):
        self.gate.wait(5)
        if self.failure:
            raise self.failure
        self.calls.append(("out", layers, blocks))

    def copy_in(self, layers, blocks):
        self.calls.append(("in", layers, blocks))


@pytest.fixture
async def staging():
    recorder = Recorder()
    thread = StagingThread(recorder, asyncio.get_running_loop())
    yield recorder, thread
    recorder.gate.set()
    thread.close()


async def test_results_come_back_in_order(staging):
    recorder, thread = staging
    recorder.gate.set()
    done = asyncio.Queue()
    thread.copy_out(1, spec(), (0, 1), lambda error: done.put_nowait(("out", error)))
    thread.copy_in(2, spec(), (2, 3), lambda error: done.put_nowait(("in", error)))
    assert [await asyncio.wait_for(done.get(), 5) for _ in range(2)] == [("out", ""), ("in", "")]
    assert [call[0] for call in recorder.calls] == ["out", "in"]


async def test_a_cancel_waits_for_what_runs_and_drops_the_rest(staging):
    recorder, thread = staging
    said = []
    quiesced = asyncio.Event()
    for number in range(3):
        thread.copy_out(1, spec(), (number,), said.append)
    await asyncio.sleep(0.05)
    thread.cancel(1, quiesced.set)
    assert not quiesced.is_set(), "one copy runs"
    thread.copy_out(1, spec(), (9,), said.append)
    recorder.gate.set()
    await asyncio.wait_for(quiesced.wait(), 5)
    assert said == []
    assert len(recorder.calls) == 1


async def test_a_cancel_without_work_is_quiet_at_once(staging):
    _, thread = staging
    quiesced = []
    thread.cancel(5, lambda: quiesced.append(True))
    assert quiesced == [True]


@pytest.mark.parametrize("kind", [RuntimeError, IndexError])
async def test_any_error_is_reported_and_the_next_chunk_is_staged(staging, kind):
    recorder, thread = staging
    recorder.failure = kind("device lost")
    recorder.gate.set()
    done = asyncio.Queue()
    thread.copy_out(1, spec(), (0,), done.put_nowait)
    assert await asyncio.wait_for(done.get(), 5) == "staging failed: device lost"
    recorder.failure = None
    thread.copy_out(2, spec(), (0,), done.put_nowait)
    assert await asyncio.wait_for(done.get(), 5) == ""
