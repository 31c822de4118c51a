"""Watches the servers: who answers, under which life, with which model, and how loaded.

Each server has a task of its own, so one that hangs delays no other, and no request.
"""

import asyncio
import time

import aiohttp

from baton.core.ids import Role
from baton.errors import BatonError
from baton.runtime.notice import notice
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.event_reader import EventReader
from baton.runtime.vllm.probe import probe_pair
from baton.runtime.vllm.scrape import read_cache_config, read_load, read_models, read_version
from baton.runtime.vllm.servers import SAME_LIFE_S, Server

_RETRY_FAILED_PAIRS_S = 15.0


class Monitor:
    """Keeps the server table true until it is closed."""

    def __init__(self, backend: VllmBackend) -> None:
        self._backend = backend
        self._tasks: list[asyncio.Task[None]] = []
        self._readers: dict[str, EventReader] = {}
        self._seen: dict[str, float] = {}

    def start(self) -> None:
        """Begin to watch."""
        for server in self._backend.servers:
            self.watch(server)
        self._tasks.append(asyncio.create_task(self._probe_pairs()))

    def watch(self, server: Server) -> None:
        """Watch one more server."""
        if server.address.events:
            reader = EventReader(server, self._backend.prefixes, self._backend.metrics)
            self._readers[server.server_id] = reader
            self._tasks.append(asyncio.create_task(reader.run()))
        self._tasks.append(asyncio.create_task(self._keep(server)))

    async def close(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, server: Server) -> None:
        wait_s = self._backend.config.vllm.scrape_ms / 1000
        while True:
            try:
                await self._look(server)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._missed(server, error)
            except BatonError as error:
                self._fall(server, str(error))
            await asyncio.sleep(wait_s)

    def _missed(self, server: Server, error: BaseException) -> None:
        """A refused connection says at once what silence says after a while."""
        name = server.server_id
        limit_s = self._backend.config.vllm.silence_ms / 1000
        refused = isinstance(error, aiohttp.ClientConnectorError)
        if not refused and time.monotonic() - self._seen.get(name, 0.0) < limit_s:
            return
        self._fall(server, "it refuses connections" if refused else "it does not answer /health")

    def _fall(self, server: Server, why: str) -> None:
        if server.is_up:
            notice(server.server_id, f"epoch {server.epoch} is down: {why}")
        server.fall(why)

    async def _look(self, server: Server) -> None:
        client = self._backend.client
        limit_s = self._backend.config.vllm.silence_ms / 1000
        status, _ = await client.get(f"{server.url}/health", limit_s)
        if status != 200:
            raise BatonError(f"/health answers {status}")
        _, page = await client.get(f"{server.url}/metrics", limit_s)
        text = page.decode("utf-8", "replace")
        load = read_load(text)
        if not server.is_up or abs(load.started - server.load.started) > SAME_LIFE_S:
            await self._introduce(server, limit_s)
            if server.role is not Role.MIXED:
                await self._backend.connector.meet(server)
            self._admit(server, read_cache_config(text))
            self._rise(server, load.started)
        server.load = load
        self._seen[server.server_id] = time.monotonic()

    def _admit(self, server: Server, cache: dict[str, str]) -> None:
        """Raises BatonError for a life that is not what the deployment is made of."""
        try:
            self._backend.manifest.meet(server, cache, self._backend.connector.info(server))
        except BatonError as error:
            if not server.is_up and server.why_down != str(error):
                notice(server.server_id, f"is not admitted: {error}")
            raise

    def _rise(self, server: Server, started: float) -> None:
        if not server.rise(started):
            notice(server.server_id, f"epoch {server.epoch} answers again")
            return
        self._backend.prefixes.begin(server.server_id, server.epoch)
        if reader := self._readers.get(server.server_id):
            reader.restart()
        notice(server.server_id, f"epoch {server.epoch} is up: {server.model} at {server.url}")

    async def _introduce(self, server: Server, limit_s: float) -> None:
        """Learn the model. Raises BatonError for one that the others do not serve."""
        client = self._backend.client
        _, body = await client.get(f"{server.url}/v1/models", limit_s)
        cards = read_models(body)
        if not cards:
            raise BatonError("/v1/models names no model")
        first = cards[0]
        for other in self._backend.servers:
            if other is not server and other.root and other.root != (first.root or first.id):
                raise BatonError(
                    f"it serves {first.root or first.id!r}, and {other.server_id} serves "
                    f"{other.root!r}; a deployment has one model"
                )
        server.model, server.root = first.id, first.root or first.id
        server.models = frozenset(card.id for card in cards)
        server.max_model_len = first.max_model_len
        status, body = await client.get(f"{server.url}/version", limit_s)
        # What an earlier life was is no answer of this one.
        server.version = read_version(body) if status == 200 else ""

    async def _probe_pairs(self) -> None:
        """Let each new pair hand a small prompt over before requests depend on it."""
        if not self._backend.config.vllm.probe:
            return
        wait_s = self._backend.config.vllm.scrape_ms / 1000
        retry_s = time.monotonic() + _RETRY_FAILED_PAIRS_S
        while True:
            for prefill, decode in self._backend.servers.unproven():
                await probe_pair(self._backend, prefill, decode)
            if time.monotonic() > retry_s:
                self._backend.servers.forget_failures()
                retry_s = time.monotonic() + _RETRY_FAILED_PAIRS_S
            await asyncio.sleep(wait_s)
