"""When a handoff is under way between the servers, as those say who take part in it."""

import asyncio
import random
from collections import Counter

from baton.core.ids import Direction, Role
from baton.integrations.vllm.messages import Status
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.servers import Server
from baton.runtime.vllm.ticketed import BatonConnector

_POLL_S = 0.002
_DELAY_S = {Direction.PULL: 0.02, Direction.PUSH: 0.5}
"""A pull lasts as long as its bytes move, a push as long as its prompt is computed."""
_ENDED = ("failed_loads", "aborted_holds", "lost_peers", "quarantines_by_time", "expired_leases")


class Moments:
    """Looks into the connectors, where they answer; else it knows what the gateway knows."""

    def __init__(self, backend: VllmBackend, direction: Direction, dice: random.Random) -> None:
        self._backend = backend
        self._direction = direction
        self._dice = dice

    async def wait_under_way(self, asking: "asyncio.Task[None]") -> str:
        """What is under way, once something is; "" when nothing was until the request had ended."""
        prefilled = self._prefilled()
        while not asking.done():
            if isinstance(self._backend.connector, BatonConnector):
                found = await self._open_load()
            else:
                # The stock connector answers no questions: a prompt that has just been computed
                # is about to be read, for its decode leg is posted now.
                found = "decode begins to read" if self._prefilled() > prefilled else ""
            if found:
                await asyncio.sleep(self._dice.uniform(0.0, _DELAY_S[self._direction]))
                return found
            await asyncio.sleep(_POLL_S)
        return ""

    def _prefilled(self) -> int:
        return self._backend.metrics.legs["prefill", "ok"]

    async def _open_load(self) -> str:
        for server in self._backend.servers.up(Role.DECODE):
            status = await self.status(server)
            if status is not None and status.open_loads and await self._is_moving():
                return f"{status.loading_blocks} blocks are loaded"
        return ""

    async def _is_moving(self) -> bool:
        """A push opens its load before its prompt begins; then nothing moves yet."""
        if self._direction is Direction.PULL:
            return True
        found = [await self.status(server) for server in self._backend.servers.up(Role.PREFILL)]
        return any(status is not None and status.open_holds for status in found)

    async def status(self, server: Server) -> Status | None:
        """What its connector holds; None where it does not answer, or is not ours."""
        connector = self._backend.connector
        if not isinstance(connector, BatonConnector) or not server.address.control:
            return None
        return await connector.status(server)

    async def endings(self, but: Server) -> Counter[str]:
        """How many handoffs each way of a bad end has had, on all servers but one."""
        found: Counter[str] = Counter()
        for server in self._backend.servers:
            status = await self.status(server) if server is not but else None
            if status is not None:
                found.update({n: c for n in _ENDED if (c := status.counters.get(n, 0))})
        return found
