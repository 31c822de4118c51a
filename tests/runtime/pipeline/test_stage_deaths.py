"""A stage's death is its worker's: one epoch for the group, and no process is left behind."""

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest
from real_deployment import serving

from baton.bench.traffic import make_request, prompt_of, run_together
from baton.config import load_config
from baton.errors import BatonError
from baton.runtime.deployment import deploy

pytestmark = pytest.mark.slow
SECONDS = 300.0
"""A bound for laden machines; a new life of a worker takes a few."""
PATIENT = [
    f"router.{name}_ms=300000" for name in ("attempt_timeout", "ttft_budget", "decode_stall")
]
PROMPT = "The harbour was quiet that morning. " * 4


def stages_of(pid: int) -> list[int]:
    """Processes that a worker started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until_gone(pids: list[int]) -> None:
    async with asyncio.timeout(SECONDS):
        while any(map(is_alive, pids)):
            await asyncio.sleep(0.05)


async def test_a_stream_outlives_a_stage_and_nothing_is_left_of_its_group():
    body = {"prompt": PROMPT, "max_tokens": 300}
    async with serving("cluster.decode_pp=3", *PATIENT) as served:
        served.client.timeout = httpx.Timeout(SECONDS)  # the stream waits for the next life
        calm = await served.stream(body)
        assert not calm.error and len(calm.tokens) == 300
        worker = served.view("decode-1").info
        group = stages_of(worker.pid)
        assert len(group) == 3 and stages_of(served.view("prefill-0").info.pid) == []
        progress: list[str] = []
        running = asyncio.create_task(served.stream(body, progress))
        while len(progress) < 20:
            await asyncio.sleep(0.005)
        os.kill(group[1], signal.SIGKILL)
        assert await running == calm
        await served.until_replaced("decode-1", worker.epoch, SECONDS)
        await until_gone([worker.pid, *group])
        assert len(stages_of(served.view("decode-1").info.pid)) == 3
        assert await served.stream(body) == calm
        assert await served.until_idle(10) == []


async def test_a_stopped_stage_does_not_outlive_its_worker():
    async with serving("cluster.prefill_pp=2") as served:
        worker = served.view("prefill-0").info
        group = stages_of(worker.pid)
        os.kill(group[0], signal.SIGSTOP)
        os.kill(worker.pid, signal.SIGKILL)
        await until_gone([worker.pid, *group])
        await served.until_replaced("prefill-0", worker.epoch, SECONDS)
        assert not (await served.stream({"prompt": PROMPT, "max_tokens": 3})).error


async def test_more_stages_than_layers_end_the_start_with_the_knob():
    config = load_config(None, ["model.name=tiny", "cluster.decode_pp=5"])
    async with deploy(config, lambda *_: None) as deployment:
        with pytest.raises(BatonError, match=r"cluster\.decode_pp 5: tiny has 4 layers"):
            await deployment.wait_ready(SECONDS)


async def test_rows_of_a_long_prompt_pass_in_many_steps():
    """Larger than the pipe between two stages, in whole-prompt steps of one process and of four."""
    told = []
    for pp_size in (1, 4):
        config = load_config(
            None,
            [
                "model.name=tiny",
                "cluster.prefill=0",
                "cluster.decode=0",
                "cluster.mixed=1",
                f"cluster.prefill_pp={pp_size}",
                "worker.max_batch_tokens=4096",
            ],
        )
        async with deploy(config, lambda *_: None) as deployment:
            await deployment.wait_ready(SECONDS)
            requests = [make_request(prompt_of(n, 256, n), 4) for n in (1900, 700)]
            told.append([t.token_ids for t in await run_together(deployment, requests)])
    assert told[0] == told[1]
