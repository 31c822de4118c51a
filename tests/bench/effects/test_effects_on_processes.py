"""The tiny model through real processes: exact bytes, bounded credit, one result in two halves."""

import pytest

from baton.bench.effects.credit import measure_credit
from baton.bench.effects.ledger import measure_ledger, measure_reuse
from baton.bench.effects.rig import open_rig
from baton.bench.effects.runahead import open_pair
from baton.bench.traffic import prompt_of
from baton.config import ModelConfig
from baton.runtime.model_preparation import prepare_model

pytestmark = pytest.mark.slow


async def test_every_byte_is_accounted_for():
    effect = await measure_ledger("tiny")
    assert effect.met, effect.measured
    assert len(effect.figures["bills"]) > 5


async def test_later_turns_send_what_is_missing():
    effect = await measure_reuse("tiny")
    assert effect.met, effect.measured


async def test_one_chunk_of_credit_is_one_chunk_in_flight():
    wide, one = (await measure_credit("tiny")).figures["windows"]
    assert one.peak_chunks == 1 and one.peak_nbytes <= one.capacity_nbytes
    assert wide.peak_nbytes <= wide.capacity_nbytes


async def test_a_slow_link_is_what_a_copy_takes():
    async with open_rig("tiny", ['transfer.schedule="layer"']) as rig:
        prompt = prompt_of(64, rig.info.vocab_size, 1)
        nbytes = (await rig.ask(prompt, salt="free")).moved[0].nbytes
        rig.set_link(nbytes / 0.02)
        slow = await rig.ask(prompt, salt="slow")
    assert len(slow.moved) == rig.info.layout.num_layers
    assert min(line.duration_us for line in slow.moved) >= 20_000


async def test_two_processes_compute_what_one_does():
    path = str(await prepare_model("tiny", lambda *_: None))
    with open_pair(path, ModelConfig(name="tiny", self_test=False), 200) as (pair, ready):
        length = min(200, ready.max_model_len - 1)
        for rows_first in (0, 64, 100, length - 1):
            pair.prefill(length, rows_first)
        assert len(pair.truths) == 1 and pair.num_runs == 4
        assert all(next(iter(pair.truths)))
