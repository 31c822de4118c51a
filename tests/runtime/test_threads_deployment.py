"""A worker of two threads, in its own process on two cores, answers what a worker of one does."""

import os

import pytest

from baton.bench.traffic import make_request, prompt_of, run_together
from baton.config import load_config
from baton.runtime.deployment import deploy

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="a worker of two threads needs two cores"
)
MIXED = ("model.name=tiny", "cluster.prefill=0", "cluster.decode=0", "cluster.mixed=1")
LENGTHS = (70, 300, 9, 128)


async def answers(threads: int) -> tuple[str, list[list[int]]]:
    config = load_config(None, [*MIXED, f"worker.threads={threads}"])
    async with deploy(config, lambda *_: None) as deployment:
        await deployment.wait_ready(60)
        (worker,) = deployment.supervisor.workers
        assert len(worker.cores) == threads
        requests = [make_request(prompt_of(n, 260, n), 12) for n in LENGTHS]
        timed = await run_together(deployment, requests)
        return worker.deterministic_report, [one.token_ids for one in timed]


async def test_two_threads_serve_the_same_tokens():
    report, expected = await answers(1)
    assert "1 thread)" in report
    report, found = await answers(2)
    assert report.startswith("deterministic:") and "2 threads)" in report
    assert found == expected and all(len(tokens) == 12 for tokens in found)
