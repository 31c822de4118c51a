"""What the calls of one gateway share: servers, router, client, connector, counters."""

import asyncio
import logging
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from baton.config import BatonConfig
from baton.core.ids import Role
from baton.runtime.vllm.connector import Connector, NixlConnector, Params
from baton.runtime.vllm.handoffs import Handoffs
from baton.runtime.vllm.http_client import HttpClient
from baton.runtime.vllm.manifest_keeper import ManifestKeeper
from baton.runtime.vllm.metrics import VllmMetrics
from baton.runtime.vllm.prefixes import Prefixes
from baton.runtime.vllm.router import VllmRouter
from baton.runtime.vllm.servers import Server, ServerTable
from baton.runtime.vllm.tracer import Tracer

logger = logging.getLogger("baton.vllm")

MAX_RELEASES = 256


def make_connector(config: BatonConfig, headers: dict[str, str]) -> Connector:
    """The connector that the configuration names."""
    if config.vllm.connector == "nixl":
        return NixlConnector(headers)
    from baton.runtime.vllm.ticketed import BatonConnector

    return BatonConnector(config.vllm, config.router.ttft_budget_ms)


def _own_headers(config: BatonConfig) -> dict[str, str]:
    name = config.vllm.api_key_variable
    key = os.environ.get(name, "") if name else ""
    return {"authorization": f"Bearer {key}"} if key else {}


class VllmBackend:
    """One deployment of vLLM servers, for as long as the gateway runs."""

    def __init__(self, config: BatonConfig, trace_dir: Path | None = None) -> None:
        """Raises ConfigError where the connector's keys cannot be read."""
        self.config = config
        self.tracer = Tracer(config, trace_dir)
        self.own_headers = _own_headers(config)
        """Of requests that no client sent."""
        self.connector = make_connector(config, self.own_headers)
        self.servers = ServerTable()
        self.manifest = ManifestKeeper(config, self.servers)
        self.prefixes = Prefixes()
        self.router = VllmRouter(config, self.servers, self.prefixes)
        self.handoffs = Handoffs(self.tracer, self.spawn)
        self.metrics = VllmMetrics(self.servers, self.handoffs.counts)
        self.client = HttpClient()
        self.num_open = 0
        """Outputs that have arrived and not ended."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End what still runs, and every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()
        self.tracer.close()

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
        down = [f"{s.server_id} at {s.url}: {s.why_down}" for s in self.servers if not s.is_up]
        if down:
            return "; ".join(down)
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

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that outlives its request; it has to bound itself."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def release(self, decode: Server, params: Params) -> None:
        """Give back a handle that no decode will read: its blocks need not wait for a lease."""
        if len(self._tasks) >= MAX_RELEASES:
            self.metrics.releases["left_to_lease"] += 1
            return
        self.spawn(self._release(decode, params))

    async def _release(self, decode: Server, params: Params) -> None:
        told = await self.connector.give_back(self.client, decode, params)
        self.metrics.releases["released" if told else "left_to_lease"] += 1
