"""Transfer rights between real processes: enforced, revocable, and never written anywhere."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from baton.config import load_config
from baton.protocol.signing import Ed25519Signer
from baton.runtime.deployment import Deployment, deploy
from baton.runtime.front import open_front
from baton.runtime.launch import LocalLauncher

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

FIRST_NONCE = 907_199_254_740_000
"""Minted from here on, so that a nonce in a text is not taken for an innocent number."""
TOKENS = 24


class Seen:
    """Every secret that the router's key produced, as it produced it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.secrets: list[bytes] = []
        sign = Ed25519Signer.sign

        def remember(signer: Ed25519Signer, data: bytes) -> bytes:
            signature = sign(signer, data)
            self.secrets += [signer._private_key, signature]
            return signature

        monkeypatch.setattr(Ed25519Signer, "sign", remember)

    def spellings(self) -> Iterator[bytes]:
        """Each secret as it might be printed."""
        for secret in dict.fromkeys(self.secrets):
            yield secret
            yield secret.hex().encode()
            yield base64.b64encode(secret)
            yield repr(secret)[2:-1].encode()


async def ask(client: httpx.AsyncClient, number: int, salt: str) -> str:
    """One answer; no worker has anything of it under a new salt, so its bytes have to move."""
    body: dict[str, Any] = {
        "prompt": [(number * 31 + i * 7) % 250 for i in range(400)],
        "max_tokens": TOKENS,
        "temperature": 0.0,
        "ignore_eos": True,
        "cache_salt": salt,
    }
    response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["completion_tokens"] == TOKENS
    return str(response.json()["choices"][0]["text"])


def worker_counter(deployment: Deployment, name: str) -> int:
    views = deployment.router.node.fleet
    return sum(v.snapshot.counters.get(name, 0) for v in views if v.snapshot)


async def provoke(deployment: Deployment, client: httpx.AsyncClient) -> None:
    """Serve, revoke in the middle, and sign something that every worker must refuse."""
    router, rights = deployment.router, deployment.router.node.context.rights
    rights._issuer._last_nonce = FIRST_NONCE
    calm = [await ask(client, number, "calm") for number in range(4)]
    handoffs = worker_counter(deployment, "handoffs")
    assert handoffs > 0

    async def revoke() -> None:
        for _ in range(6):
            await asyncio.sleep(0.02)
            router.revoke_routes("test")

    asked = (ask(client, number, "revoked") for number in range(4))
    _, *answers = await asyncio.gather(revoke(), *asked)
    assert answers == calm
    assert router.node.counters["route_revocations"] == 6
    rights._ttl_us *= 1000
    assert await ask(client, 0, "refused") == calm[0], (
        "recomputed where it decodes, and exactly the same"
    )
    rights._ttl_us //= 1000
    assert await ask(client, 1, "after") == calm[1]
    handed = worker_counter(deployment, "handoffs")
    await asyncio.sleep(0.5)  # two heartbeats
    assert worker_counter(deployment, "handoffs") >= handed > handoffs
    assert worker_counter(deployment, "capability_denied_ttl") == 1
    assert worker_counter(deployment, "unauthorized_chunks") == 0
    floors = {view.snapshot.revoked_below for view in router.node.fleet if view.snapshot}
    assert floors == {rights.revoked_below} and rights.revoked_below > 0


async def test_rights_are_enforced_and_no_key_signature_or_nonce_is_written_anywhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    config = load_config(None, ["model.name=tiny", "gateway.port=0", "worker.max_batch_tokens=64"])
    async with (
        deploy(config, lambda stage, fraction: None, trace_dir=tmp_path) as deployment,
        open_front(config, deployment) as front,
        httpx.AsyncClient(base_url=front.url, timeout=60, trust_env=False) as client,
    ):
        await deployment.wait_ready(60)
        await provoke(deployment, client)
        supervisor, launcher = deployment.supervisor, LocalLauncher(config, Path("model"))
        specs = [
            supervisor._spec(worker, await launcher.take_site(worker.ordinal))
            for worker in supervisor.workers
        ]
        pages = [(await client.get(path)).content for path in ("/metrics", "/version", "/ready")]
        pages += [msgspec.json.encode(deployment.router.status()), deployment.router.metrics()]
        pages += [msgspec.json.encode(spec) for spec in specs]
        node = deployment.router.node
        pages += [repr(view.snapshot).encode() for view in node.fleet]
    out, err = capfd.readouterr()
    paths = sorted(tmp_path.rglob("*.jsonl"))
    traces = [path.read_bytes() for path in paths]
    assert [path.name for path in paths] == ["decode-1.jsonl", "prefill-0.jsonl", "router.jsonl"]
    for trace, name in zip(
        traces, (b"access_granted", b"authorized", b"routes_revoked"), strict=True
    ):
        assert name in trace
    assert b'"reason":"routes_revoked"' in b"".join(traces), "it met transfers under way"
    assert b"capability_ttl" in b"".join(traces), "a denial is traced by its reason"
    assert b"capability_denied_ttl" in pages[0]
    assert len(seen.secrets) >= 2 * 9
    written = b"\n".join([*pages, *traces, out.encode(), err.encode()])
    assert not [secret for secret in seen.spellings() if secret in written]
    assert str(FIRST_NONCE)[:10].encode() not in written
    assert node.context.rights._issuer._last_nonce > FIRST_NONCE + 8
