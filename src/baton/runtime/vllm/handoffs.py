"""Asks the connectors how handoffs went, beside the answers: never a client's time.

One question at a time goes to a destination, for all handoffs that its first answers showed since
the last one. Whoever is not told of within the bounds keeps the coarse phases, by name.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import Any

from baton.core.effects import Trace
from baton.runtime.clock import now_us
from baton.runtime.vllm.connector import Connector, HandoffWord, Params, WantedWord
from baton.runtime.vllm.servers import Server
from baton.runtime.vllm.tracer import Tracer

logger = logging.getLogger("baton.vllm")

GATHER_S = 0.05
"""Handoffs of so long share a question."""
ASK_MS = 700
"""Together with the wait less than the second after which a request that ended is told."""
MAX_WAITING = 1_024
"""Of one server; as many as its connector remembers."""
MAX_ASKED = 256

Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Handoffs:
    """What is to be asked, by destination; a task for each that has something."""

    def __init__(self, tracer: Tracer, spawn: Spawn) -> None:
        self.counts: Counter[str] = Counter()
        """Handoffs by what came of the question."""
        self._tracer = tracer
        self._spawn = spawn
        self._waiting: dict[str, deque[WantedWord]] = {}

    def want(
        self, connector: Connector, decode: Server, params: Params, request_id: str, generation: int
    ) -> None:
        """The first event of an answer is here: its handoff is over, one way or the other."""
        if not connector.is_telling:
            return
        wanted = WantedWord(
            params=params, request_id=request_id, generation=generation, answered_us=now_us()
        )
        waiting = self._waiting.get(decode.server_id)
        if waiting is None:
            self._waiting[decode.server_id] = deque((wanted,))
            self._spawn(self._ask_all(connector, decode))
        elif len(waiting) < MAX_WAITING:
            waiting.append(wanted)
        else:
            self._miss(wanted, "crowded")

    async def _ask_all(self, connector: Connector, decode: Server) -> None:
        waiting = self._waiting[decode.server_id]
        try:
            while waiting:
                await asyncio.sleep(GATHER_S)
                batch = [waiting.popleft() for _ in range(min(MAX_ASKED, len(waiting)))]
                for wanted, word in zip(batch, await self._ask(connector, batch), strict=True):
                    self._take(wanted, word, decode)
        finally:
            del self._waiting[decode.server_id]

    async def _ask(self, connector: Connector, batch: list[WantedWord]) -> list[HandoffWord]:
        try:
            async with asyncio.timeout(ASK_MS / 1000):
                return await connector.words(batch, ASK_MS)
        except Exception as error:  # whatever it is, answers go on, and the trace is coarse
            logger.warning("handoffs are not told of: %s: %s", type(error).__name__, error)
            return [HandoffWord(missing="silent")] * len(batch)

    def _take(self, wanted: WantedWord, word: HandoffWord, decode: Server) -> None:
        if word.missing:
            self._miss(wanted, word.missing)
            return
        self.counts["failed" if word.failed else "published"] += 1
        self._tracer.hear(decode.server_id, word.marks)

    def _miss(self, wanted: WantedWord, why: str) -> None:
        """The coarse phases stay, and the trace says why."""
        self.counts[why] += 1
        self._tracer.say(
            Trace(
                name="handoff_unseen",
                request_id=wanted.request_id,
                generation=wanted.generation,
                data={"reason": why},
            )
        )
