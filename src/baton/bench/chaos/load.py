"""Constant closed-loop load: some clients, each with one request open at a time."""

import asyncio
import random
from collections.abc import Callable, Mapping

from baton.bench.chaos.answers import Answer
from baton.bench.chaos.asks import Ask
from baton.bench.chaos.calls import Called, End, call, read_answer
from baton.bench.chaos.kinds import LEAVES, Kind
from baton.bench.chaos.plan import REQUEST_BOUND_S
from baton.bench.chaos.wire import Address

NUM_CLIENTS = 6
_LEAVE_SHARE = 0.2
_PAUSE_S = 0.1
_MAX_PAUSE_S = 1.6
_SALTS = (None, None, "north", "south", "east")
_STORM = (24, 48)


class Load:
    """Runs until it is cancelled or told to stop; `on_call` takes every ended call."""

    def __init__(
        self,
        address: Address,
        asks: tuple[Ask, ...],
        references: Mapping[str, Answer],
        kinds: frozenset[Kind],
        seed: int,
        on_call: Callable[[Called], None],
        on_fault: Callable[[Kind], None],
    ) -> None:
        self._address = address
        self._asks = asks
        self._references = references
        self._leaves = [kind for kind in LEAVES if kind in kinds]
        self._seed = seed
        self._on_call = on_call
        self._on_fault = on_fault
        self._stopping = False
        self._storm_chance = random.Random(f"storm {seed}")
        self._salt = 0

    async def run(self) -> None:
        """Keep every client busy until `stop`; each one's last request is waited for."""
        async with asyncio.TaskGroup() as group:
            for number in range(NUM_CLIENTS):
                group.create_task(self._client(random.Random(f"client {self._seed} {number}")))

    def stop(self) -> None:
        """Let every client end with the request that it has open."""
        self._stopping = True

    async def storm(self) -> None:
        """Dozens of requests at once whose clients all leave."""
        chance = self._storm_chance
        leaves = self._leaves or list(LEAVES)
        calls = [
            self._one(random.Random(chance.random()), chance.choice(leaves))
            for _ in range(chance.randint(*_STORM))
        ]
        await asyncio.gather(*calls)

    async def _client(self, chance: random.Random) -> None:
        """Refused: again soon. Not reached: less and less often, until somebody is reached."""
        pause_s = _PAUSE_S
        while not self._stopping:
            leave = None
            if self._leaves and chance.random() < _LEAVE_SHARE:
                leave = chance.choice(self._leaves)
            called = await self._one(chance, leave)
            if called.end is End.UNREACHED:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)
                continue
            pause_s = _PAUSE_S
            if called.end is End.REFUSED:
                await asyncio.sleep(_PAUSE_S)

    async def _one(self, chance: random.Random, leave: Kind | None) -> Called:
        ask = chance.choice(self._asks)
        extra: dict[str, object] = {"stream": chance.random() < 0.65}
        if salt := chance.choice(_SALTS):
            # Some salts are new, so that prompts are computed and moved again and again.
            self._salt += 1
            extra["cache_salt"] = salt if chance.random() < 0.5 else f"{salt}-{self._salt}"
        called = await call(
            self._address,
            ask,
            self._references[ask.name],
            bound_s=REQUEST_BOUND_S,
            extra=extra,
            leave=leave,
            chance=chance,
        )
        if leave is not None and called.end is End.LEFT:
            self._on_fault(leave)
        self._on_call(called)
        return called


async def collect_references(address: Address, asks: tuple[Ask, ...]) -> dict[str, Answer]:
    """The answers of a calm deployment. Raises BatonError when one is not whole."""
    return {ask.name: await read_answer(address, ask, REQUEST_BOUND_S) for ask in asks}
