"""Whatever the engine raises ends that step or digest; a lost thread ends the worker."""

import asyncio
import threading

import pytest
from lone_worker import SECONDS, lone_worker

from baton.core.effects import DigestKV
from baton.core.events import BatchDone, Event, KVDigested
from baton.core.work import Batch, BatchResult
from baton.errors import BatonError, EngineLost
from baton.runtime.engine_thread import EngineThread

ORDER = DigestKV(request_id="r1", generation=3, block_ids=(0,), num_tokens=1)


class Moody:
    """An engine that raises what it is told to, once."""

    def __init__(self) -> None:
        self.mood: BaseException | None = None

    def _answer(self) -> None:
        mood, self.mood = self.mood, None
        if mood is not None:
            raise mood

    def execute(self, batch, on_layer=None):
        self._answer()
        return BatchResult(batch_id=batch.batch_id)

    def kv_digest(self, block_table, num_tokens):
        self._answer()
        return "d"


@pytest.fixture
async def thread():
    engine, said, lost = Moody(), asyncio.Queue[Event](), asyncio.Queue[str]()
    thread = EngineThread(
        engine, asyncio.get_running_loop(), said.put_nowait, lost.put_nowait
    )  # fmt: skip
    yield thread, engine, said, lost
    thread.close()


async def heard(queue: asyncio.Queue) -> object:
    return await asyncio.wait_for(queue.get(), SECONDS)


@pytest.mark.parametrize("error", [IndexError("block 9"), KeyError("r1"), BatonError("no")])
async def test_a_step_that_raises_is_answered_and_the_next_one_runs(thread, error):
    engine_thread, engine, said, _ = thread
    engine.mood = error
    engine_thread.submit(Batch(batch_id=1, items=()))
    event = await heard(said)
    assert isinstance(event, BatchDone) and event.result.batch_id == 1
    assert type(error).__name__ in event.result.error
    engine_thread.submit(Batch(batch_id=2, items=()))
    assert (await heard(said)).result == BatchResult(batch_id=2)


async def test_a_digest_that_raises_is_empty_and_ends_its_sequence(thread, capsys):
    engine_thread, engine, said, _ = thread
    engine.mood = RuntimeError("CUDA error: device-side assert")
    engine_thread.submit(ORDER)
    assert await heard(said) == KVDigested(request_id="r1", generation=3, kv_digest="")
    assert "device-side assert" in capsys.readouterr().err
    engine_thread.submit(ORDER)
    assert (await heard(said)).kv_digest == "d"


async def test_a_lost_process_ends_no_step_but_the_worker(thread):
    """A step that ended with it may have been half written: nobody may hear that it is over."""
    engine_thread, engine, said, lost = thread
    engine.mood = EngineLost("pipeline stage 1 (pid 7) ended with signal 9")
    engine_thread.submit(Batch(batch_id=1, items=()))
    assert await heard(lost) == "pipeline stage 1 (pid 7) ended with signal 9"
    assert said.empty()


async def test_a_thread_that_ends_says_so(thread, monkeypatch):
    engine_thread, engine, _, lost = thread
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    engine.mood = SystemExit("out")
    engine_thread.submit(ORDER)
    assert "SystemExit: out" in await heard(lost)


async def test_a_worker_without_its_engine_thread_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    async with lone_worker(tmp_path) as worker:

        def ended(*args):
            raise SystemExit("gone")

        monkeypatch.setattr(worker.engine, "kv_digest", ended)
        worker.host._threads.submit(ORDER)
        with pytest.raises(BatonError, match="the engine thread ended: SystemExit: gone"):
            await asyncio.wait_for(asyncio.shield(worker.running), SECONDS)


async def test_a_worker_whose_node_lost_its_effects_ends(tmp_path, monkeypatch):
    async with lone_worker(tmp_path) as worker:

        def broken(event, now_us):
            raise KeyError("a bug of the node")

        monkeypatch.setattr(worker.host._node, "handle", broken)
        worker.host._loop.set_exception_handler(lambda loop, context: None)
        with pytest.raises(BatonError, match="the worker ended at Tick: KeyError"):
            await asyncio.wait_for(asyncio.shield(worker.running), SECONDS)
