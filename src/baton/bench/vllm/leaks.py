"""What servers at rest should not have: requests, taken blocks, handoffs that nobody ended."""

import asyncio
import time

from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.servers import Server
from baton.runtime.vllm.ticketed import BatonConnector, leaks_of

REST_S = 60.0
"""Longer than the lease of vLLM's own connector, 30 s."""
_POLL_S = 0.5


async def find_leaks(backend: VllmBackend, rest_s: float = REST_S) -> list[str]:
    """What is still there after every request has ended and every lease has run out."""
    deadline_s = time.monotonic() + rest_s
    while True:
        found = [text for server in backend.servers if (text := await _leak(backend, server))]
        if not found or time.monotonic() > deadline_s:
            return found
        await asyncio.sleep(_POLL_S)


async def _leak(backend: VllmBackend, server: Server) -> str:
    load = server.load
    held = {
        "running": load.running,
        "waiting": load.waiting,
        "pending_tokens": server.pending_tokens,
        "active": server.active,
        "taken_blocks": round(load.kv_usage * load.num_blocks),
    }
    found = [f"{name} {count}" for name, count in held.items() if count]
    connector = backend.connector
    if isinstance(connector, BatonConnector) and server.address.control:
        status = await connector.status(server)
        text = leaks_of(status) if status is not None else "its connector does not answer"
        found += [text] if text else []
    return f"{server.server_id}: {', '.join(found)}" if found else ""
