"""What the calls of one gateway share: servers, router, client, connector, counters."""

import asyncio
import logging
import os
from collections.abc import Coroutine
from typing import Any

import msgspec

from baton.config import BatonConfig
from baton.core.ids import Role
from baton.runtime.vllm.connector import Connector, Params
from baton.runtime.vllm.http_client import HttpClient
from baton.runtime.vllm.leg import LegFailed
from baton.runtime.vllm.metrics import VllmMetrics
from baton.runtime.vllm.prefixes import Prefixes
from baton.runtime.vllm.router import VllmRouter
from baton.runtime.vllm.servers import Server, ServerTable

logger = logging.getLogger("baton.vllm")

RELEASE_S = 10.0
RELEASE_MODEL = "baton-gives-this-handle-back"
"""No server has a model of this name, so it refuses the request and notifies the source."""
MAX_RELEASES = 256


class VllmBackend:
    """One deployment of vLLM servers, for as long as the gateway runs."""

    def __init__(self, config: BatonConfig, connector: Connector) -> None:
        self.config = config
        self.connector = connector
        self.servers = ServerTable()
        self.prefixes = Prefixes()
        self.router = VllmRouter(config, self.servers, self.prefixes)
        self.metrics = VllmMetrics(self.servers)
        self.client = HttpClient()
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End what still runs, and every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()

    @property
    def model(self) -> str:
        """What the servers call their model; "" before one has answered."""
        return next((server.model for server in self.servers if server.model), "")

    def can_split(self) -> bool:
        """Some pair can hand over now."""
        probes = self.config.vllm.probe
        return any(
            self.servers.failure_of(prefill, decode) == "" or not probes
            for prefill in self.servers.up(Role.PREFILL)
            for decode in self.servers.up(Role.DECODE)
        )

    def incomplete(self) -> str:
        """What is missing until everything works as it was asked for; "" when nothing is."""
        for server in self.servers:
            if not server.is_up:
                return f"{server.server_id} at {server.url}: {server.why_down}"
        has_pairs = any(server.role is Role.PREFILL for server in self.servers)
        if not has_pairs or self.can_split():
            return ""
        failures = [
            f"{prefill.server_id} to {decode.server_id}: {why}"
            for prefill in self.servers.up(Role.PREFILL)
            for decode in self.servers.up(Role.DECODE)
            if (why := self.servers.failure_of(prefill, decode))
        ]
        return "; ".join(failures) or "no pair has handed a prompt over yet"

    def serves(self, name: str) -> bool:
        """Whether a client may ask for a model by this name."""
        return name == self.config.model.name or any(name in s.models for s in self.servers)

    @property
    def max_model_len(self) -> int:
        """The shortest context of the servers that answer; 0 while none does."""
        return min((s.max_model_len for s in self.servers if s.max_model_len), default=0)

    def own_headers(self) -> dict[str, str]:
        """Of requests that no client sent."""
        name = self.config.vllm.api_key_variable
        key = os.environ.get(name, "") if name else ""
        return {"authorization": f"Bearer {key}"} if key else {}

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that outlives its request; it has to bound itself."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def release(self, decode: Server, params: Params) -> None:
        """Give back a handle that no decode will read: its blocks need not wait for a lease."""
        kept = self.connector.release_params(params)
        if kept is None:
            return
        if len(self._tasks) >= MAX_RELEASES:
            self.metrics.releases["left_to_lease"] += 1
            return
        self.spawn(self._release(decode, kept))

    async def _release(self, decode: Server, params: Params) -> None:
        body = msgspec.json.encode(
            {"model": RELEASE_MODEL, "prompt": [1], "max_tokens": 1, "kv_transfer_params": params}
        )
        headers = {"content-type": "application/json", **self.own_headers()}
        outcome = "left_to_lease"
        try:
            path = "/v1/completions"
            async with self.client.post("release", decode, path, body, headers, RELEASE_S):
                logger.warning("%s served a request that gives a handle back", decode.server_id)
        except LegFailed as failed:
            outcome = "released" if failed.status == 404 else outcome
        self.metrics.releases[outcome] += 1
