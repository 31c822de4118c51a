"""One life of a worker on another node, seen through its keeper."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import ray

from baton.runtime.launch import LifeLost
from baton.runtime.ray.inquest import Inquest
from baton.runtime.ray.orders import News

_KILL_TIMEOUT_S = 5.0
"""A keeper that has not said by then that its worker has ended is given up with it."""


class RayLife:
    """See `Life`."""

    def __init__(self, keeper: Any, inquest: Inquest) -> None:
        self._keeper = keeper
        self._inquest = inquest
        self._code: int | None = None
        self._given_up = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def lines(self) -> AsyncIterator[bytes]:
        """See `Life.lines`."""
        try:
            while self._code is None:
                news = await self._ask()
                for line in news.lines:
                    yield line
                self._code = news.code
        finally:
            self._end()

    async def wait(self) -> int:
        """See `Life.wait`: the last news brought the code."""
        if self._code is None:
            raise LifeLost("it was not heard to its end")
        return self._code

    async def prove_end(self) -> bool:
        """See `Life.prove_end`: its node testifies, and ends what still runs there."""
        return self._code is not None or await self._inquest.hold()

    def stop(self) -> None:
        """See `Life.stop`."""
        self._keeper.stop.remote()

    def kill(self) -> None:
        """See `Life.kill`."""
        if self._timer is None:
            self._keeper.kill.remote()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_KILL_TIMEOUT_S, self._given_up.set)

    async def _ask(self) -> News:
        asking = asyncio.ensure_future(self._news())
        giving_up = asyncio.ensure_future(self._given_up.wait())
        try:
            await asyncio.wait([asking, giving_up], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise LifeLost("its node does not answer, and it is unknown whether it runs there")
            return asking.result()
        finally:
            asking.cancel()
            giving_up.cancel()

    async def _news(self) -> News:
        try:
            return msgspec.msgpack.decode(await self._keeper.news.remote(), type=News)
        except ray.exceptions.RayError as error:
            raise LifeLost(_first_line(error)) from error

    def _end(self) -> None:
        """The place is given back; were anything of the worker left, it would end now."""
        if self._timer is not None:
            self._timer.cancel()
        ray.kill(self._keeper)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
