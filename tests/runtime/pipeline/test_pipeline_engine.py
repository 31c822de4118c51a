"""The stages of one worker as its engine: steps, one that fails, and a process that ends."""

import os
import select
import signal

import pytest
from msgspec.structs import replace

from baton.config import load_config
from baton.core.ids import Role
from baton.core.request import SamplingParams
from baton.core.work import Batch, WorkItem
from baton.engine.loader import resolve_model
from baton.errors import EngineLost, LocalProtocolError
from baton.runtime.dataplane import Arena
from baton.runtime.pipeline import PipelineEngine

pytestmark = pytest.mark.slow
ITEM = WorkItem(
    request_id="r",
    generation=0,
    token_ids=(5, 6, 7),
    start=0,
    num_prompt_tokens=3,
    block_table=(2,),
    sample=True,
    sampling=SamplingParams(max_tokens=2, temperature=0.0),
)
BATCH = Batch(batch_id=4, items=(ITEM,))


@pytest.fixture
def engine():
    config = load_config(None, ["model.name=tiny", "model.self_test=false", "cluster.decode_pp=2"])
    engine = PipelineEngine.load(
        config, Role.DECODE, str(resolve_model("tiny")), lambda stage, fraction: None
    )
    nbytes = 8 * engine.info.layout.bytes_per_block // 2
    arenas = [Arena.create("w0", nbytes, epoch=1) for _ in engine.stages]
    engine.bind_arenas(arenas, 8)
    yield engine
    engine.close()
    engine.unbind_pool()
    for arena in arenas:
        arena.close()
    for stage in engine.stages:
        assert not os.path.exists(f"/proc/{stage.pid}")


def test_steps_run_and_the_death_of_a_stage_ends_them(engine):
    layers: list[int] = []
    result = engine.execute(BATCH, layers.append)
    assert (result.batch_id, result.error, len(result.sampled)) == (4, "", 1)
    assert layers == [0, 1, 2, 3]
    assert engine.execute(BATCH).sampled == result.sampled
    assert "2 pipeline stages of 2 + 2 layers" in engine.deterministic_report
    with pytest.raises(LocalProtocolError, match="a block id is outside"):
        engine.execute(replace(BATCH, items=(replace(ITEM, block_table=(8,)),)))
    assert engine.execute(BATCH).sampled == result.sampled
    first, last = engine.stages
    os.kill(last.pid, signal.SIGKILL)
    assert select.select([last.exit_fd], [], [], 30)[0]
    with pytest.raises(EngineLost, match=r"pipeline stage \d \(pid \d+\) ended with"):
        engine.execute(BATCH)
    assert "signal 9" in str(last.lost())
    assert first.pid != last.pid
