"""The closed loop and its effects, on made-up operator times; no data needed."""

import numpy as np
import pytest

from baton.planner.predict.closed_loop import NUM_TIMES, loop_times
from baton.planner.predict.effects import QUANTITIES, effect_name, quantities_of
from baton.planner.predict.features import Features
from baton.planner.predict.fitting import Sample, fit, predict
from baton.planner.predict.operating import TERMS

LABELS = {
    kind: f"some {kind}" for kind in ("phase", "release", "model", "build", "kind", "platform")
}


def features(concurrency, *, step=10.0, prompt=50.0, split=False, room=1e9, servers=1.0):
    """`concurrency` requests each, on one decode rank; linear layers alone take time."""
    c = np.asarray(concurrency, np.float64)
    one = np.ones(len(c))

    def terms(milliseconds):
        found = np.zeros((len(c), len(TERMS)))
        found[:, 0] = milliseconds
        return found

    return Features(
        decode=terms(step),
        prompt=terms(prompt),
        queued=terms(prompt),
        mixed=terms(0.0 if split else prompt),
        is_split=one * split,
        batch=c,
        room=one * room,
        ranks=one,
        servers=one * servers,
        dp=one,
        num_prompt=one * 2048,
        num_output=one * 1000,
        concurrency=c,
        is_given=one,
        extrapolated=tuple(() for _ in c),
        sources=tuple("" for _ in c),
        cases=tuple(None for _ in c),
    )


def times(found, **changed):
    quiet = {name: np.zeros(len(found.batch)) for name in QUANTITIES}
    quiet |= {name: np.ones(len(found.batch)) for name in ("decode", "prefill", "queue", "starve")}
    quiet |= {name: np.full(len(found.batch), value) for name, value in changed.items()}
    return loop_times(found, np.ones(NUM_TIMES), quiet)


def test_one_request_alone_waits_for_itself():
    found = times(features([1.0], split=True))
    assert found.ttft[0] == pytest.approx(50.0, rel=1e-6)
    assert found.tpot[0] == pytest.approx(10.0)


def test_prompts_of_others_lie_between_the_tokens_of_a_colocated_worker():
    # Of 20 requests with 1000 tokens, 0.02 prompts of 50 ms start in each step, less those queued.
    alone, mixed = times(features([20.0], split=True)), times(features([20.0]))
    assert alone.tpot[0] == pytest.approx(10.0)
    assert 10.9 < mixed.tpot[0] < 11.0


def test_a_bottleneck_of_prompts_bounds_the_rate():
    # 400 requests, 50 ms a prompt: at most 20 a second, so each takes 20 s and queues for 10.
    found = times(features([400.0], split=True))
    assert found.ttft[0] == pytest.approx(400 * 50.0 - 10_000.0, rel=0.02)
    faster = times(features([400.0], split=True, servers=4.0))
    assert faster.ttft[0] < found.ttft[0] / 20


def test_more_requests_never_make_a_token_or_a_first_token_faster():
    found = times(features([1.0, 2.0, 8.0, 64.0, 256.0]))
    assert np.all(np.diff(found.ttft) > 0) and np.all(np.diff(found.tpot) > 0)


def test_requests_beyond_the_room_for_their_cache_wait_for_others_to_end():
    inside = times(features([32.0], room=64.0))
    beyond = times(features([128.0], room=64.0))
    assert beyond.tpot[0] == pytest.approx(times(features([64.0], room=64.0)).tpot[0])
    assert beyond.ttft[0] > inside.ttft[0] + 10_000


def test_an_effect_acts_on_its_label_alone():
    name = effect_name("decode", "model", "some model")
    found = quantities_of([LABELS, LABELS | {"model": "another"}], {name: np.log(2.0)})
    assert found["decode"] == pytest.approx([2.0, 1.0])
    assert found["stall"] == pytest.approx([0.5, 0.5])


def test_the_fit_finds_the_effects_that_made_the_times_and_ignores_outliers():
    rng = np.random.default_rng(3)
    sizes = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
    made = features(np.tile(sizes, 4), step=rng.uniform(5, 20, 32), prompt=rng.uniform(20, 90, 32))
    labels = [LABELS | {"model": "slow" if i % 2 else "plain"} for i in range(32)]
    truth = {effect_name("decode", "model", "slow"): np.log(1.3)}
    real = predict(made, labels, truth)
    tpot = real.tpot.copy()
    tpot[5] *= 4.0
    sample = Sample(features=made, labels=labels, ttft=real.ttft, tpot=tpot, weights=np.ones(32))
    found = predict(made, labels, fit(sample))
    assert np.median(np.abs(found.tpot / real.tpot - 1)) < 0.02
    ratio = np.median((found.tpot / predict(made, labels, {}).tpot)[1::2])
    assert ratio == pytest.approx(
        np.median((real.tpot / predict(made, labels, {}).tpot)[1::2]), rel=0.03
    )
