"""Ends the work of a request as soon as its client is gone or has stopped reading."""

import asyncio
import time
from contextlib import suppress
from types import TracebackType

from baton.runtime.gateway.exchange import Exchange


class ClientWatch:
    """Cancels the surrounding task on a disconnect or a stall, and absorbs that cancellation.

    Cancellation from anywhere else (a server that shuts down) passes through. `reason` says why
    the block was left early; it is empty if it was not.
    """

    def __init__(self, exchange: Exchange, stall_s: float) -> None:
        self.reason = ""
        self._exchange = exchange
        self._stall_s = stall_s
        self._closed = False

    async def __aenter__(self) -> "ClientWatch":
        task = asyncio.current_task()
        assert task is not None, "a watch needs a task to cancel"
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._watcher = self._loop.create_task(self._watch_disconnect())
        self._timer = self._loop.call_later(self._stall_s / 4, self._check_stall)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._closed = True
        self._watcher.cancel()
        self._timer.cancel()
        if not self.reason:
            return False
        if kind is not asyncio.CancelledError:
            # The block ended in the same moment by itself: take the cancellation that is due.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            self._task.uncancel()
            return False
        return self._task.uncancel() == 0

    async def _watch_disconnect(self) -> None:
        while (await self._exchange.receive())["type"] != "http.disconnect":
            pass
        # A completed response also shows up as a disconnect; there is nothing left to give up.
        if not self._exchange.completed:
            self._leave("disconnect")

    def _check_stall(self) -> None:
        since = self._exchange.sending_since
        if since and time.perf_counter() - since >= self._stall_s:
            self._exchange.abort()
            self._leave("stall")
            return
        self._timer = self._loop.call_later(self._stall_s / 4, self._check_stall)

    def _leave(self, reason: str) -> None:
        if not (self._closed or self.reason):
            self.reason = reason
            self._task.cancel()
