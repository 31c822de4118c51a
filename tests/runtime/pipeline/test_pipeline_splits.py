"""Real workers cut into pipeline stages, each side its own way, give the tokens of one process."""

import pytest

from baton.bench.traffic import make_request, prompt_of, run_together
from baton.config import load_config
from baton.core.ids import Mode
from baton.runtime.deployment import deploy

LENGTHS = (1, 17, 100, 300)
SPLITS = [(2, 1), (1, 2), (3, 2), (2, 4), (2, 2)]


async def answers(mode: Mode, *overrides: str) -> list[list[int]]:
    config = load_config(None, ['model.name="tiny"', *overrides])
    async with deploy(config, lambda *_: None) as deployment:
        await deployment.wait_ready(300)
        requests = [make_request(prompt_of(n, 256, n), 8) for n in LENGTHS]
        told = await run_together(deployment, requests)
    assert {t.mode for t in told} == {mode}
    return [t.token_ids for t in told]


@pytest.fixture(scope="module")
def whole():
    """Filled by the first test: what one process says."""
    return []


@pytest.mark.slow
@pytest.mark.parametrize(("source", "destination"), SPLITS)
async def test_split_tokens_equal_those_of_one_process(whole, source, destination):
    if not whole:
        one = ["cluster.prefill=0", "cluster.decode=0", "cluster.mixed=1"]
        whole.extend(await answers(Mode.COLOCATED, *one))
    splits = [f"cluster.prefill_pp={source}", f"cluster.decode_pp={destination}"]
    assert await answers(Mode.DISAGGREGATED, *splits) == whole
