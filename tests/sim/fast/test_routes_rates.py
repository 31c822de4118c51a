"""Rates learned by the compiled router are those that a production worker measures."""

from random import Random

import pytest

from baton.core.request import SamplingParams
from baton.core.snapshot import Rates
from baton.core.work import Batch, BatchResult, WorkItem
from baton.nodes.lifetimes import Lifetimes
from baton.nodes.rates import RateMeter
from baton.sim.fast import routes_fleet as f
from baton.sim.fast.routes_rates import expected_output, learn_end, learn_step, set_rates


def item(random: Random, is_decode: bool) -> tuple[int, int, int]:
    """Prompt length, start, rows."""
    prompt = random.randint(1, 2000)
    if is_decode:
        return prompt, prompt + random.randint(0, 50), 1
    start = random.choice([0, random.randrange(prompt)])
    return prompt, start, random.randint(1, prompt - start)


def made(prompt: int, start: int, rows: int) -> WorkItem:
    return WorkItem(
        request_id="r",
        generation=0,
        token_ids=(1,) * rows,
        start=start,
        num_prompt_tokens=prompt,
        block_table=(),
        sample=False,
        sampling=SamplingParams(max_tokens=1),
    )


@pytest.mark.parametrize("seed", range(12))
def test_steps_teach_what_the_meter_of_a_worker_learns(seed):
    random = Random(seed)
    fleet, meter = f.make_fleet([f.MIXED, f.MIXED]), RateMeter(Rates())
    same = random.random() < 0.3
    for _ in range(60):
        kinds = random.choice([[True], [False], [True, False]])
        items = [item(random, random.choice(kinds)) for _ in range(random.randint(1, 6))]
        duration_us = 5000 if same else random.randint(1000, 90_000)
        batch = Batch(batch_id=1, items=tuple(made(*one) for one in items))
        meter.step(BatchResult(batch_id=1, duration_us=duration_us), batch)
        decodes = [one for one in items if one[1] >= one[0]]
        prompts = [one for one in items if one[1] < one[0]]
        rows = sum(n for *_, n in prompts)
        pairs = sum(n * start + n * (n + 1) // 2 for _, start, n in prompts)
        learn_step(fleet, 1, rows, float(pairs), len(decodes), float(duration_us))
    set_rates(fleet, 1)
    rates = meter.rates()
    assert fleet.clocks[1, f.TOKEN_US] == rates.prefill_us_per_token
    assert fleet.clocks[1, f.PAIR_US] == rates.prefill_us_per_pair
    assert fleet.clocks[1, f.STEP_US] == rates.decode_step_us
    assert fleet.clocks[1, f.SEQUENCE_US] == rates.decode_us_per_sequence
    assert not fleet.clocks[0].any()


def test_an_answer_is_expected_to_be_as_long_as_the_last_ones():
    fleet, lifetimes, random = f.make_fleet([f.MIXED]), Lifetimes(), Random(3)
    assert expected_output(fleet, 100) == 100
    for _ in range(200):
        num_tokens = random.randint(1, 300)
        learn_end(fleet, num_tokens)
        lifetimes.observe(5, num_tokens)
        assert expected_output(fleet, 120) == lifetimes.output_tokens(120)
