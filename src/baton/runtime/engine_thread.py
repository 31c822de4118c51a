"""The one thread that computes: steps and digests in order, results back on the event loop."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable

from baton.core.effects import DigestKV
from baton.core.events import BatchDone, Event, KVDigested, LayerReady
from baton.core.work import Batch, BatchResult
from baton.errors import EngineLost
from baton.runtime.notice import notice
from baton.runtime.pipeline import StepEngine


class EngineThread:
    """Runs the engine beside the event loop, so that compute delays no message and no health.

    Whatever a step or a digest raises is its own end and not the thread's: heartbeats would go on
    without it. Should the thread itself end, `lost(reason)` is called on the event loop.
    """

    def __init__(
        self,
        engine: StepEngine,
        loop: asyncio.AbstractEventLoop,
        post: Callable[[Event], None],
        lost: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._post = post
        self._lost = lost
        self._work: queue.SimpleQueue[Batch | DigestKV | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, work: Batch | DigestKV) -> None:
        """Queue a step or a digest."""
        self._work.put(work)

    def close(self) -> None:
        """Finish what runs and stop."""
        self._work.put(None)
        self._thread.join(timeout=30)

    def _run(self) -> None:
        try:
            while (work := self._work.get()) is not None:
                event = self._step(work) if isinstance(work, Batch) else self._digest(work)
                self._emit(event)
        except EngineLost as error:
            self._tell(str(error))
        except BaseException as error:
            self._tell(f"the engine thread ended: {_text(error)}")
            raise

    def _tell(self, reason: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._lost, reason)

    def _emit(self, event: Event) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._post, event)

    def _step(self, batch: Batch) -> BatchDone:
        def on_layer(layer: int) -> None:
            self._emit(LayerReady(batch_id=batch.batch_id, layer=layer))

        try:
            result = self._engine.execute(batch, on_layer if batch.report_layers else None)
        except EngineLost:
            raise
        except Exception as error:
            result = BatchResult(batch_id=batch.batch_id, error=_text(error))
        return BatchDone(result=result)

    def _digest(self, order: DigestKV) -> KVDigested:
        """The digest of a sequence's rows; empty when it failed, so that the sequence still ends.

        An empty digest equals no other, and `baton compare` reports it as missing.
        """
        try:
            kv_digest = self._engine.kv_digest(order.block_ids, order.num_tokens)
        except Exception as error:
            notice("engine", f"no K/V digest of {order.request_id}: {_text(error)}")
            kv_digest = ""
        return KVDigested(
            request_id=order.request_id, generation=order.generation, kv_digest=kv_digest
        )


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
