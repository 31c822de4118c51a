"""A model cut into stages computes the bits of the model in one piece."""

import itertools
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from baton.config import ModelConfig
from baton.core.request import SamplingParams
from baton.core.work import Batch, WorkItem
from baton.engine.engine import Engine
from baton.engine.loader import resolve_model
from baton.engine.pool import Pool, digest_pools
from baton.engine.stage import StageEngine
from baton.errors import ConfigError, LocalProtocolError

NUM_BLOCKS, BLOCK_SIZE, MIN_ROWS = 16, 8, 6
PROMPT = tuple(5 * n % 251 for n in range(45))
CONFIG = ModelConfig(name="tiny", self_test=False)


def batches(pads: Sequence[int] = (17, 30)) -> list[Batch]:
    """A prompt in two chunks, then four decode rows; another sequence shares the second step."""
    cuts = [0, *pads, len(PROMPT)]
    steps = [(a, PROMPT[a:b]) for a, b in itertools.pairwise(cuts)]
    steps += [(len(PROMPT) + n, (n + 7,)) for n in range(4)]
    made = []
    for number, (start, ids) in enumerate(steps):
        items = [item("a", ids, start, len(PROMPT), (9, 2, 14, 3, 7, 1, 11))]
        if number == 1:
            items.append(item("b", tuple(range(20)), 0, 20, (0, 4, 5)))
        made.append(Batch(batch_id=number, items=tuple(items)))
    return made


def item(name, ids, start, num_prompt, table) -> WorkItem:
    return WorkItem(
        request_id=name,
        generation=0,
        token_ids=ids,
        start=start,
        num_prompt_tokens=num_prompt,
        block_table=table,
        sample=start + len(ids) >= num_prompt,
        sampling=SamplingParams(max_tokens=9, temperature=0.8, seed=3),
    )


@pytest.fixture(scope="module")
def whole():
    """What one piece draws, and the digest of its rows."""
    engine = Engine.load(resolve_model("tiny"), config=CONFIG, block_size=BLOCK_SIZE)
    engine.forward.agree(MIN_ROWS)
    engine.bind_pool(None, NUM_BLOCKS)
    drawn = [engine.execute(batch).sampled for batch in batches()]
    return drawn, engine.kv_digest((9, 2, 14, 3, 7, 1, 11), len(PROMPT) + 4)


def cut(pp_size: int) -> list[StageEngine]:
    return [
        StageEngine.load(
            resolve_model("tiny"),
            config=CONFIG,
            block_size=BLOCK_SIZE,
            threads=1,
            stage=stage,
            pp_size=pp_size,
            field="cluster.prefill_pp",
            progress=lambda *_: None,
        )
        for stage in range(pp_size)
    ]


@pytest.mark.parametrize("pp_size", [1, 2, 3, 4])
def test_every_cut_draws_and_writes_the_bits_of_one_piece(whole, pp_size):
    stages = cut(pp_size)
    assert [n for stage in stages for n in stage.layers] == [0, 1, 2, 3]
    pools, drawn, seen = [], [], []
    for stage in stages:
        layout = replace(stage.info.layout, num_layers=len(stage.layers), pp_size=1)
        buffer = memoryview(bytearray(NUM_BLOCKS * layout.bytes_per_block))
        stage.bind(buffer, NUM_BLOCKS, MIN_ROWS)
        pools.append(Pool(layout, NUM_BLOCKS, buffer=buffer))
    for batch in batches():
        flow = None
        for stage in stages:
            flow, sampled = stage.run(batch, flow, seen.append)
            assert stage.is_last or sampled == ()
        drawn.append(sampled)
    table = (9, 2, 14, 3, 7, 1, 11)
    assert (drawn, digest_pools(pools, table, len(PROMPT) + 4)) == whole
    assert seen == [0, 1, 2, 3] * len(batches())


def test_more_stages_than_layers_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"^cluster\.prefill_pp 5: tiny has 4 layers.*4 or less"):
        cut(5)


def test_a_stage_without_memory_runs_nothing():
    with pytest.raises(LocalProtocolError, match="bind first"):
        cut(2)[0].run(batches()[0], None, None)
