"""Faults of vLLM servers that Baton has started: deaths, ends, freezes, at a chosen moment."""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from baton.bench.vllm.chaos_result import VllmFault
from baton.bench.vllm.moments import Moments
from baton.core.ids import Direction
from baton.errors import BatonError
from baton.runtime.vllm.processes import ServerProcess
from baton.runtime.vllm.serve import VllmFront, wait_complete

KINDS = (
    "kill-prefill", "kill-decode", "kill-prefill-mid", "kill-decode-mid",
    "restart-prefill", "restart-decode",
    "freeze-prefill", "freeze-decode", "freeze-prefill-mid", "freeze-decode-mid",
    "storm",
)  # fmt: skip
"""A `-mid` hits while a handoff of a long prompt is under way."""

_SIGNALS = {"kill": signal.SIGKILL, "restart": signal.SIGTERM, "freeze": signal.SIGSTOP}
_SHORT_S = (0.5, 3.0)
_LONG_S = (11.0, 14.0)
"""Longer than a lease of Baton's connector, shorter than what makes a server count as dead."""
_TRIES = 5
_POLL_S = 0.02


class Injector:
    """Injects one fault after the other. `over_s`: when the last one was over, monotonic."""

    def __init__(
        self,
        front: VllmFront,
        direction: Direction,
        dice: random.Random,
        ask_long: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._front = front
        self._dice = dice
        self._ask_long = ask_long
        self._moments = Moments(front.backend, direction, dice)
        self._before: Counter[str] = Counter()
        self._asking: set[asyncio.Task[None]] = set()
        self.over_s = 0.0

    async def inject(self, fault: VllmFault) -> None:
        """Hit a server; returns when it is hit, or no longer frozen.

        Raises BatonError where the moment that the kind asks for did not come.
        """
        action, role, *moment = fault.kind.split("-")
        slot = self._slot(role)
        fault.server, fault.epoch = slot.server.server_id, slot.server.epoch
        self._before = await self._moments.endings(slot.server)
        if moment:
            await self._wait_moment(fault)
        await self._hit(slot, action, fault, _LONG_S if moment else _SHORT_S)

    async def _wait_moment(self, fault: VllmFault) -> None:
        for _ in range(_TRIES):
            asking = asyncio.create_task(self._ask_long())
            self._asking.add(asking)
            fault.seen = await self._moments.wait_under_way(asking)
            if fault.seen:
                return
        raise BatonError("no handoff of a long prompt was seen under way")

    async def settle(self) -> None:
        """Return when the requests are judged that a fault was to hit; each bounds itself."""
        asking, self._asking = self._asking, set()
        await asyncio.gather(*asking)

    async def _hit(
        self, slot: ServerProcess, action: str, fault: VllmFault, freeze_s: tuple[float, float]
    ) -> None:
        slot.kill(_SIGNALS[action])
        self.over_s = time.monotonic()
        if action != "freeze":
            return
        fault.lasted_s = self._dice.uniform(*freeze_s)
        try:
            await asyncio.sleep(fault.lasted_s)
        finally:
            slot.kill(signal.SIGCONT)
        self.over_s = time.monotonic()

    async def wait_back(self, fault: VllmFault, timeout_s: float) -> None:
        """Return when every server is up, this one under its next epoch if it had to die.

        Raises BatonError with what is missing.
        """
        deadline_s = time.monotonic() + timeout_s
        if fault.kind.startswith(("kill", "restart")):
            server = self._front.backend.servers[fault.server]
            while server.epoch == fault.epoch:
                if time.monotonic() > deadline_s:
                    raise BatonError(f"{fault.server} did not come back: {server.why_down}")
                await asyncio.sleep(_POLL_S)
        if not fault.server:
            self.over_s = time.monotonic()
        await wait_complete(self._front, max(1.0, deadline_s - time.monotonic()))

    async def endings(self, fault: VllmFault) -> dict[str, int]:
        """Handoffs that the other servers have ended badly since the fault began."""
        server = self._front.backend.servers[fault.server]
        return dict(await self._moments.endings(server) - self._before)

    def _slot(self, role: str) -> ServerProcess:
        assert self._front.processes is not None
        slots = [slot for slot in self._front.processes.slots if slot.server.role == role]
        return self._dice.choice(slots)
