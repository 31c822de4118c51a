"""On a GPU: pools on the device, handoff through the host mirror, split equals colocated."""

import pytest
import torch

from baton.bench.traffic import make_request, prompt_of, run_together
from baton.config import load_config
from baton.core.ids import Mode
from baton.runtime.deployment import deploy

ROLES = {
    Mode.COLOCATED: ["cluster.prefill=0", "cluster.decode=0", "cluster.mixed=1"],
    Mode.DISAGGREGATED: [],
}


async def answers(mode: Mode, *overrides: str) -> list[list[int]]:
    config = load_config(None, ['model.name="tiny"', *ROLES[mode], *overrides])
    async with deploy(config, lambda *_: None) as deployment:
        await deployment.wait_ready(120)
        requests = [make_request(prompt_of(n, 256, n), 12) for n in (1, 15, 16, 17, 300, 700)]
        timed = await run_together(deployment, requests)
    assert {t.mode for t in timed} == {mode}
    return [t.token_ids for t in timed]


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["push", "pull"])
async def test_a_staged_pool_gives_the_same_tokens(direction):
    staged = ['transfer.staging="always"', f'transfer.direction="{direction}"']
    assert await answers(Mode.DISAGGREGATED, *staged) == await answers(Mode.COLOCATED)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("direction", ["push", "pull"])
async def test_device_pools_give_the_same_tokens(direction):
    device = ['model.device="cuda"', f'transfer.direction="{direction}"']
    split = await answers(Mode.DISAGGREGATED, *device)
    assert split == await answers(Mode.COLOCATED, 'model.device="cuda"')
