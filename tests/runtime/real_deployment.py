"""A real deployment of the tiny model behind the real gateway, and what it must look like idle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec

from baton.config import load_config
from baton.nodes.fleet import WorkerView
from baton.runtime.deployment import Deployment, deploy
from baton.runtime.footprint import footprint
from baton.runtime.front import open_front
from baton.runtime.leftovers import leftovers

START_S = 60.0


class Answer(msgspec.Struct, frozen=True):
    """What a client read of one stream."""

    text: str
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    error: str = ""


class Served:
    """The deployment with its address and an HTTP client."""

    def __init__(self, deployment: Deployment, address: tuple[str, int]) -> None:
        self.deployment = deployment
        self.address = address
        self.client = httpx.AsyncClient(
            base_url="http://{}:{}".format(*address), timeout=60, trust_env=False
        )

    def view(self, worker_id: str) -> WorkerView:
        """The router's view of a worker."""
        view = self.deployment.router.node.fleet.get(worker_id)
        assert view is not None, f"{worker_id} is not up"
        return view

    def counter(self, worker_id: str, name: str) -> int:
        """A counter of a worker's last snapshot."""
        shot = self.view(worker_id).snapshot
        return shot.counters.get(name, 0) if shot else 0

    async def ready_status(self) -> int:
        """HTTP status of /ready."""
        return (await self.client.get("/ready")).status_code

    async def until_replaced(self, worker_id: str, epoch: int, timeout_s: float) -> None:
        """Wait until a later life of the worker has joined and the deployment is ready."""
        async with asyncio.timeout(timeout_s):
            while True:
                view = self.deployment.router.node.fleet.get(worker_id)
                if view and view.info.epoch > epoch and await self.ready_status() == 200:
                    return
                await asyncio.sleep(0.05)

    async def stream(self, body: dict[str, Any], progress: list[str] | None = None) -> Answer:
        """Read a completion stream to its end; `progress` grows with every piece of text."""
        pieces = [] if progress is None else progress
        tokens: list[str] = []
        logprobs: list[float] = []
        reason = error = ""
        whole = {"temperature": 0.0, "ignore_eos": True, "logprobs": 0, **body, "stream": True}
        async with self.client.stream("POST", "/v1/completions", json=whole) as response:
            if response.status_code != 200:
                return Answer("", (), (), "", (await response.aread()).decode())
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                item = msgspec.json.decode(line[6:])
                if "error" in item:
                    error = str(item["error"])
                    break
                for choice in item["choices"]:
                    pieces.append(choice["text"])
                    reason = choice["finish_reason"] or reason
                    details = choice["logprobs"] or {}
                    tokens += details.get("tokens", ())
                    logprobs += details.get("token_logprobs", ())
        return Answer("".join(pieces), tuple(tokens), tuple(logprobs), reason, error)

    # -- idle ----------------------------------------------------------------------------------

    def leftovers(self) -> list[str]:
        """Everything that an idle deployment must not hold, by the workers' last snapshots."""
        return leftovers(self.deployment.router.node)

    async def until_idle(self, timeout_s: float) -> list[str]:
        """Wait until nothing is held any more; returns what still is."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        await asyncio.sleep(0.5)  # two heartbeats: snapshots of before would say nothing
        while (found := self.leftovers()) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.1)
        return found

    def footprint(self) -> dict[str, int]:
        """Open files and shared segments of this process and of every worker."""
        return footprint(self.deployment.router.node)

    async def until_footprint(self, wanted: dict[str, int], timeout_s: float) -> dict[str, int]:
        """Wait until open files and segments are as wanted; returns what they are."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while (counts := self.footprint()) != wanted:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.1)
        return counts


@asynccontextmanager
async def serving(*overrides: str) -> AsyncIterator[Served]:
    """Deploy the tiny model, serve it on a free port, and watch for silent workers."""
    config = load_config(None, ["model.name=tiny", "gateway.port=0", *overrides])
    async with (
        deploy(config, lambda stage, fraction: None) as deployment,
        open_front(config, deployment) as front,
    ):
        await deployment.wait_ready(START_S)
        watching = asyncio.create_task(deployment.watch())
        served = Served(deployment, (front.host, front.port))
        try:
            yield served
        finally:
            await served.client.aclose()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
