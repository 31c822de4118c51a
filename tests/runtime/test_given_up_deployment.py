"""A frozen source counts as lost and thaws: over tcp its writes land late, in nobody's blocks."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from baton.bench.traffic import make_request, prompt_of, run_request
from baton.config import load_config
from baton.runtime.dataplane.nixl import is_installed
from baton.runtime.deployment import Deployment, deploy
from baton.runtime.faults import FaultSpec

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not is_installed(), reason="NIXL is not installed: pip install 'kvbaton[nixl]'"
    ),
]
SETTINGS = [
    'model.name="tiny"',
    "cluster.prefill=2",
    'transfer.data_plane="nixl"',
    'transfer.schedule="request"',
    "transfer.chunk_nbytes=8192",
    "router.worker_timeout_ms=60000",
]
NUM_TOKENS = 300
SLOW_BYTES_PER_S = "60000"


def _quarantined(deployment: Deployment) -> int:
    view = deployment.router.node.fleet.get("decode-2")
    assert view is not None and view.snapshot is not None
    return view.snapshot.quarantined_blocks


async def _until(holds, timeout_s: float = 15.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_source_that_is_given_up_and_thaws_writes_into_quarantine_only(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("UCX_TLS", "tcp")
    link = tmp_path / "link"
    link.write_text(SLOW_BYTES_PER_S)
    faults = FaultSpec(link=str(link))
    config = load_config(None, SETTINGS)
    async with deploy(config, lambda *_: None, faults_of=lambda *_: faults) as deployment:
        await deployment.wait_ready(120)
        router = deployment.router
        request = make_request(prompt_of(NUM_TOKENS, router.info.vocab_size, 1), 8)
        answering = asyncio.create_task(run_request(deployment, request))
        await _until(lambda: any(r.fence for r in router.node.records.values()))
        (record,) = router.node.records.values()
        source = router.node.fleet.get(record.fence.source_id)
        await _until(lambda: _moved(deployment, source.info.worker_id) > 1)
        os.kill(source.info.pid, signal.SIGSTOP)
        link.write_text("")
        router.worker_lost(source.info.worker_id, source.info.epoch, False)
        timed = await answering  # by the other source
        await _until(lambda: _quarantined(deployment) > 0)
        await asyncio.sleep(0.6)  # three heartbeats
        held = _quarantined(deployment)
        assert held >= NUM_TOKENS // 16, "its blocks are nobody's while it may still write"
        os.kill(source.info.pid, signal.SIGCONT)
        await _until(lambda: _quarantined(deployment) == 0)
        lost = source.info
        await _until(lambda: not Path(f"/proc/{lost.pid}").exists(), 30)
        assert router.host_counters()["channel_dismissed_lives"] > 0, "it was told to end itself"
        await _until(lambda: _epoch(deployment, lost.worker_id) == lost.epoch + 1, 60)
        again = await run_request(
            deployment, make_request(prompt_of(NUM_TOKENS, router.info.vocab_size, 1), 8)
        )
        assert timed.token_ids == again.token_ids and len(timed.token_ids) == 8


def _epoch(deployment: Deployment, worker_id: str) -> int:
    view = deployment.router.node.fleet.get(worker_id)
    return view.info.epoch if view else 0


def _moved(deployment: Deployment, worker_id: str) -> int:
    view = deployment.router.node.fleet.get(worker_id)
    return view.snapshot.counters.get("plane_orders", 0) if view and view.snapshot else 0
