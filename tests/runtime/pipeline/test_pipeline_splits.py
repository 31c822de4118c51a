"""Real workers cut into pipeline stages, each side its own way, give the bits of one process."""

import io

import pytest
from rich.console import Console

from baton.bench.compare import command
from baton.bench.traffic import make_request, prompt_of, run_together
from baton.config import load_config
from baton.core.ids import Mode
from baton.runtime.deployment import deploy

pytestmark = pytest.mark.slow
LENGTHS = (1, 17, 100, 300)
START_S = 300.0
"""A bound for laden machines; five processes take some seconds."""
SPLITS = [
    (2, 1, 16, "push"),
    (1, 2, 32, "push"),
    (3, 2, 8, "pull"),
    (2, 4, 16, "pull"),
    (2, 2, 32, "push"),
]


async def answers(mode: Mode, *overrides: str) -> list[list[int]]:
    config = load_config(None, ["model.name=tiny", *overrides])
    async with deploy(config, lambda *_: None) as deployment:
        await deployment.wait_ready(START_S)
        requests = [make_request(prompt_of(n, 256, n), 8) for n in LENGTHS]
        told = await run_together(deployment, requests)
        for view in deployment.router.node.fleet:
            layout = view.info.model.layout
            role = view.info.role
            assert layout.pp_size == config.pp_size_of(role)
            assert layout.block_size == config.block_size_of(role)
    assert {t.mode for t in told} == {mode}
    return [t.token_ids for t in told]


@pytest.fixture(scope="module")
def whole() -> list[list[int]]:
    """What one process says; the first test asks it."""
    return []


@pytest.mark.parametrize(("source", "destination", "block_size", "direction"), SPLITS)
async def test_split_tokens_equal_those_of_one_process(
    whole, source, destination, block_size, direction
):
    if not whole:
        one = ["cluster.prefill=0", "cluster.decode=0", "cluster.mixed=1"]
        whole.extend(await answers(Mode.COLOCATED, *one))
    overrides = [
        f"cluster.prefill_pp={source}",
        f"cluster.decode_pp={destination}",
        f"cluster.decode_block_size={block_size}",
        f"transfer.direction={direction}",
    ]
    assert await answers(Mode.DISAGGREGATED, *overrides) == whole


def test_logits_and_rows_equal_those_of_one_process_bit_for_bit():
    """`baton compare`: the reference is one process, whatever the stages of the others."""
    splits = ["cluster.prefill_pp=2", "cluster.decode_pp=3", "cluster.decode_block_size=32"]
    plan = command.make_plan(
        load_config(None, ["model.name=tiny", *splits]), None, ["length-blocks-7+1", "turns"], False
    )
    assert plan.reference.config(plan.config, None).cluster.prefill_pp == 1
    console = Console(width=100, record=True, file=io.StringIO())
    assert command.compare_command(plan, console, None) == 0, console.export_text()
