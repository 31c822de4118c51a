"""The vLLM servers as the router knows them: their lives, their load, and what is under way."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec

from baton.core.ids import Role
from baton.core.snapshot import Rates
from baton.core.vllm_settings import ServerAddress
from baton.nodes.rates import Ratio
from baton.policy.routing.load import WorkerLoad

_FIRST_GUESS_US = 200.0
"""Of a prompt token before any was measured: only so that queues and prefixes have a price."""

SAME_LIFE_S = 0.005
"""Starts of a process that are less apart are one."""


class ServerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a server's /metrics said last."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    """Share of its K/V blocks that are taken, 0 to 1."""
    num_blocks: int = 0
    block_size: int = 0
    started: float = 0.0
    """Wall-clock start of its process in seconds; 0 where it does not say."""


class Server:
    """One server: its current life, and our own account of it."""

    def __init__(self, server_id: str, address: ServerAddress) -> None:
        self.server_id = server_id
        self.role = address.role
        self.address = address
        self.epoch = 0
        """Counts its lives; 0 before the first."""
        self.is_up = False
        self.why_down = "it has not answered yet"
        self.model = ""
        self.root = ""
        self.version = ""
        self.max_model_len = 0
        self.load = ServerLoad()
        self.pending_tokens = 0
        """Of prompts that were sent here and are not computed yet."""
        self.active = 0
        """Answers that decode here, or will."""
        self.prefill_us = Ratio(_FIRST_GUESS_US, 1.0)
        self.step_us = Ratio(0.0, 1.0)
        self.models: frozenset[str] = frozenset()
        """Every name that it serves, adapters included."""
        self._is_over = False
        """The process of this life is known to have ended."""
        self._waits: set[asyncio.Timeout] = set()

    @property
    def url(self) -> str:
        """Base URL, without a path."""
        return self.address.url

    def rise(self, started: float) -> bool:
        """It answers; whether this is another life. A pause is none where its start is known."""
        moved = abs(started - self.load.started) > SAME_LIFE_S
        is_new = self._is_over or not self.epoch or not started or moved
        self._is_over = False
        self.epoch += is_new
        self.is_up = True
        self.why_down = ""
        return is_new

    def end(self, why: str) -> None:
        """Its process is gone: the next answer comes from another life."""
        self._is_over = True
        self.fall(why)

    def fall(self, why: str) -> None:
        """It does not answer: whoever waits for it stops waiting."""
        self.is_up = False
        self.why_down = why
        for wait in self._waits:
            wait.reschedule(0.0)

    @asynccontextmanager
    async def guard(self, wait_s: float) -> AsyncIterator[None]:
        """Wait for this server within the block; TimeoutError after so long, or when it falls."""
        async with asyncio.timeout(wait_s) as wait:
            self._waits.add(wait)
            try:
                yield
            finally:
                self._waits.discard(wait)

    def work_load(self) -> WorkerLoad:
        """As a route policy sees it. vLLM queues by itself: room is a preference, not a gate."""
        load = self.load
        rates = Rates(
            prefill_us_per_token=self.prefill_us.value, decode_step_us=self.step_us.value
        ).plausible()
        free = int(load.num_blocks * (1 - load.kv_usage)) if load.num_blocks else 0
        return WorkerLoad(
            worker_id=self.server_id,
            role=self.role,
            pending_tokens=self.pending_tokens,
            active_requests=max(self.active, load.running + load.waiting),
            headroom_blocks=max(free, 1),
            pending_us=self.pending_tokens * rates.prefill_us_per_token,
            running=load.running,
            rates=rates,
        )


class ServerTable:
    """All servers of a deployment, and which pairs have shown that they can hand over."""

    def __init__(self) -> None:
        self._servers: dict[str, Server] = {}
        self._proven: dict[tuple[str, int, str, int], str] = {}
        """Pairs of lives that were probed, and why not where it failed."""

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers.values())

    def __getitem__(self, server_id: str) -> Server:
        return self._servers[server_id]

    def add(self, address: ServerAddress) -> Server:
        """A server under the next name of its role."""
        ordinal = sum(server.role is address.role for server in self)
        server = Server(f"{address.role}-{ordinal}", address)
        self._servers[server.server_id] = server
        return server

    def up(self, *roles: Role) -> list[Server]:
        """Servers of these roles that answer."""
        return [server for server in self if server.is_up and server.role in roles]

    def prove(self, prefill: Server, decode: Server, failure: str) -> None:
        """A probe of this pair ended; "": it can hand over."""
        self._proven[_lives(prefill, decode)] = failure

    def failure_of(self, prefill: Server, decode: Server) -> str | None:
        """Why this pair cannot hand over; "" if it can, None if nobody knows yet."""
        return self._proven.get(_lives(prefill, decode))

    def unproven(self) -> list[tuple[Server, Server]]:
        """Pairs that are up and were not probed in these lives."""
        return [
            (prefill, decode)
            for prefill in self.up(Role.PREFILL)
            for decode in self.up(Role.DECODE)
            if self.failure_of(prefill, decode) is None
        ]

    def forget_failures(self) -> None:
        """Pairs that failed are probed again."""
        self._proven = {pair: why for pair, why in self._proven.items() if not why}

    def unready(self) -> str:
        """Why nothing can be served now; "" if a server answers whole requests, or a pair does."""
        if self.up(Role.MIXED, Role.DECODE):
            return ""
        down = [f"{server.server_id}: {server.why_down}" for server in self if not server.is_up]
        return "no decode server answers; " + "; ".join(down)


def _lives(prefill: Server, decode: Server) -> tuple[str, int, str, int]:
    return prefill.server_id, prefill.epoch, decode.server_id, decode.epoch


class Timer:
    """Milliseconds of a request's phases, on one clock."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.phases_s: dict[str, float] = {}

    def lap(self, phase: str) -> float:
        """What passed since the last lap belongs to this phase, in seconds."""
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        self.phases_s[phase] = self.phases_s.get(phase, 0.0) + passed
        return passed
