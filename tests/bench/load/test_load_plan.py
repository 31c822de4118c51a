"""Schedules on a fake clock, workloads that fit, settings that are refused."""

import json
import math

import pytest

from baton.bench.load import Abilities, Target
from baton.bench.load.making import make_requests, schedule
from baton.bench.load.options import LoadOptions
from baton.bench.load.schedule import SPIN_US, leavers, sleep_until
from baton.bench.load.settings import (
    ArrivalSettings,
    BenchSettings,
    DataSettings,
    SearchSettings,
)
from baton.bench.race.plan import RacePlan
from baton.errors import ConfigError
from baton.goodput.counting import Counting

KNOWN = Abilities(model="m", vocab_size=256, max_model_len=100)


class FakeClock:
    """Time passes only while someone sleeps; timers are as coarse as an event loop's."""

    def __init__(self):
        self.now_us = 0
        self.num_spins = 0

    def __call__(self):
        return self.now_us

    async def sleep(self, seconds):
        self.num_spins += seconds == 0
        self.now_us += 7 if seconds == 0 else math.ceil(seconds * 1000) * 1000


@pytest.mark.parametrize("due_us", [0, 1, 499, 1500, 1501, 10_000, 123_456, 5_000_001])
async def test_a_request_is_never_early_and_misses_its_time_by_one_turn_only(due_us):
    clock = FakeClock()
    await sleep_until(due_us, clock, clock.sleep)
    assert due_us <= clock.now_us < due_us + 8
    assert clock.num_spins <= SPIN_US / 7 + 1


def test_exactly_the_asked_share_leaves():
    assert len(leavers(200, 0.1, 3)) == 20
    assert leavers(200, 0.1, 3) == leavers(200, 0.1, 3) != leavers(200, 0.1, 4)
    assert leavers(50, 0, 1) == frozenset()


def test_requests_are_cut_to_the_context_and_the_cut_is_noted():
    data = DataSettings(random_input_len=90, random_output_len=20, num_prompts=5)
    workload = make_requests(data, KNOWN, 1)
    assert {(r.num_prompt_tokens, r.num_output_tokens) for r in workload.requests} == {(90, 10)}
    assert any("total <= 100" in note for note in workload.notes)


def test_the_range_ratio_varies_both_lengths():
    data = DataSettings(
        random_input_len=40, random_output_len=10, random_range_ratio=0.5, num_prompts=200
    )
    found = make_requests(data, KNOWN, 1).requests
    prompts = {one.num_prompt_tokens for one in found}
    assert min(prompts) == 20 and max(prompts) == 60


@pytest.mark.parametrize(
    ("settings", "last_us"),
    [
        (ArrivalSettings(rate=10.0, process="constant"), 900_000),
        (ArrivalSettings(rate=10.0, process="constant", time_scale=0.5), 450_000),
        (ArrivalSettings(), 0),
    ],
)
def test_arrivals_follow_the_settings(settings, last_us):
    requests = make_requests(DataSettings(random_input_len=4, num_prompts=10), KNOWN, 1)
    assert schedule(requests, settings, settings.rate, 1).duration_us == last_us


def test_a_trace_keeps_its_shape_at_another_rate(tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": at, "input_length": num, "output_length": 3, "hash_ids": [num]}
        for at, num in [(0, 5), (100, 6), (400, 7)]
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    requests = make_requests(DataSettings(path=path), KNOWN, 1)
    natural = schedule(requests, ArrivalSettings(), math.inf, 1)
    assert [one.arrival_us for one in natural.requests] == [0, 100_000, 400_000]
    faster = schedule(requests, ArrivalSettings(process="trace"), 10.0, 1)
    assert [one.arrival_us for one in faster.requests] == [0, 50_000, 200_000]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DataSettings(num_prompts=0), "--num-prompts 0"),
        (lambda: DataSettings(num_prompts=10**20), "at most 10000000"),
        (lambda: LoadOptions(seed=-1), "--seed -1"),
        (lambda: LoadOptions(seed=10**23), "--seed 1000"),
        (lambda: RacePlan(duration_s=float("nan")), "duration_s = nan"),
        (lambda: DataSettings(dataset_name="sonnet"), "'sonnet'"),
        (lambda: ArrivalSettings(rate=0), "--request-rate 0"),
        (lambda: ArrivalSettings(rate=-1), "--request-rate -1"),
        (lambda: bench(arrivals=ArrivalSettings(process="poisson")), "finite --request-rate"),
        (lambda: ArrivalSettings(rate=1, burstiness=0), "--burstiness 0"),
        (lambda: SearchSettings(low=5, high=2), "--search-high 2"),
        (lambda: LoadOptions(max_concurrency=0), "--max-concurrency 0"),
        (lambda: Target(base_url="localhost:8000"), "no scheme"),
        (lambda: bench(counting=Counting(num_warmup=100)), "--warmup-requests 100"),
        (lambda: bench(search=SearchSettings()), "add --goodput"),
    ],
)
def test_settings_that_cannot_work_name_the_flag_and_the_value(make, words):
    with pytest.raises(ConfigError) as caught:
        make()
    assert words in str(caught.value)


def bench(**fields):
    plain = {
        "target": Target(base_url="http://x"),
        "data": DataSettings(),
        "arrivals": ArrivalSettings(),
        "options": LoadOptions(),
        "counting": Counting(),
    }
    return BenchSettings(**{**plain, **fields})
