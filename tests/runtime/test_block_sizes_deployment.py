"""Real workers whose blocks differ in size give the tokens of one worker."""

import pytest

from baton.bench.traffic import make_request, prompt_of, run_together
from baton.config import load_config
from baton.core.ids import Mode
from baton.runtime.deployment import deploy

LENGTHS = (1, 15, 17, 33, 100, 300, 700)


async def answers(mode: Mode, *overrides: str) -> list[list[int]]:
    config = load_config(None, ['model.name="tiny"', *overrides])
    async with deploy(config, lambda *_: None) as deployment:
        await deployment.wait_ready(120)
        requests = [make_request(prompt_of(n, 256, n), 12) for n in LENGTHS]
        cold = await run_together(deployment, requests)
        again = [make_request(prompt_of(n, 256, n), 12) for n in LENGTHS]
        warm = await run_together(deployment, again)
        if "cluster.mixed=1" not in overrides:
            sizes = {
                v.info.role: v.info.model.layout.block_size for v in deployment.router.node.fleet
            }
            assert len(set(sizes.values())) == 2
    assert {t.mode for t in (*cold, *warm)} == {mode}
    return [t.token_ids for t in (*cold, *warm)]


@pytest.mark.slow
@pytest.mark.parametrize("staging", ["auto", "always"])
@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize(("source", "destination"), [(16, 32), (32, 16), (8, 32)])
async def test_split_tokens_equal_colocated_ones(source, destination, direction, staging):
    one = ["cluster.prefill=0", "cluster.decode=0", "cluster.mixed=1"]
    sizes = [f"worker.block_size={source}", f"cluster.decode_block_size={destination}"]
    moved = [f'transfer.direction="{direction}"', f'transfer.staging="{staging}"']
    split = await answers(Mode.DISAGGREGATED, *sizes, *moved)
    assert split == await answers(Mode.COLOCATED, *one)
