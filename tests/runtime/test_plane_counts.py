"""A real deployment orders and copies exactly as often as the geometry predicts."""

import asyncio

import pytest

from baton.bench.traffic import make_request, prompt_of, run_request
from baton.config import load_config
from baton.core.ids import Mode, Schedule
from baton.policy.transfer_geometry import CallCounts, expected_calls
from baton.runtime.deployment import Deployment, deploy

NUM_TOKENS = 100
STEP_BLOCKS = 512 // 16
LAYER_BLOCK = 8192
"""Bytes of 16 rows of a layer of the tiny model."""


def counted(deployment: Deployment, worker_id: str) -> CallCounts:
    view = deployment.router.node.fleet.get(worker_id)
    assert view is not None and view.snapshot is not None
    counters = view.snapshot.counters
    return CallCounts(transfer=counters["plane_orders"], network=counters["plane_runs"])


async def measured(schedule: Schedule, direction: str, chunk_nbytes: int, credit_nbytes: int):
    """Calls of the first request, whose blocks adjoin, and those that were predicted."""
    config = load_config(
        None,
        [
            'model.name="tiny"',
            f'transfer.schedule="{schedule}"',
            f'transfer.direction="{direction}"',
            f"transfer.chunk_nbytes={chunk_nbytes}",
            f"transfer.credit_nbytes={credit_nbytes}",
        ],
    )
    async with deploy(config, lambda *_: None) as deployment:
        await deployment.wait_ready(120)
        info = deployment.router.info
        request = make_request(prompt_of(NUM_TOKENS, info.vocab_size, 1), 4)
        timed = await run_request(deployment, request)
        assert timed.mode == Mode.DISAGGREGATED
        await asyncio.sleep(0.6)  # two heartbeats
        mover, other = ("prefill-0", "decode-1")[:: 1 if direction == "push" else -1]
        assert counted(deployment, other) == CallCounts(transfer=0, network=0)
        return counted(deployment, mover), expected_calls(
            info.layout, NUM_TOKENS, schedule, chunk_nbytes, credit_nbytes, STEP_BLOCKS
        )


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("schedule", list(Schedule))
async def test_orders_and_runs_are_those_of_the_schedule(schedule, direction):
    """Seven blocks of each layer, in chunks of five, with credit for twelve."""
    found, predicted = await measured(schedule, direction, 5 * LAYER_BLOCK, 12 * LAYER_BLOCK)
    assert found == predicted


async def test_an_aggregated_prompt_is_one_order():
    found, predicted = await measured(Schedule.AGGREGATED, "push", LAYER_BLOCK, 1 << 25)
    assert found == predicted and found.transfer == 1
