"""Draws depend on the row, the seed and the position only, and follow the distribution."""

import numpy as np
import pytest
import torch
from engine_models import item, prompt, step

from baton.core.request import SamplingParams
from baton.engine.sampling import draw, sample, uniform

PARAMS = SamplingParams(max_tokens=9)
LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.3, 0.15], np.float32))


def params(**changes):
    return SamplingParams(max_tokens=9, **changes)


def frequencies(count=4000, **changes):
    drawn = [draw(LOGITS, params(seed=seed, **changes), 17) for seed in range(count)]
    return np.bincount(drawn, minlength=5) / count


def test_distribution():
    np.testing.assert_allclose(frequencies(), np.exp(LOGITS), atol=0.03)
    sharp = np.exp(LOGITS / 0.5)
    np.testing.assert_allclose(frequencies(temperature=0.5), sharp / sharp.sum(), atol=0.03)


def test_top_k_and_top_p():
    np.testing.assert_allclose(frequencies(top_k=2), [0, 4 / 7, 0, 3 / 7, 0], atol=0.03)
    np.testing.assert_allclose(frequencies(top_p=0.69), [0, 4 / 7, 0, 3 / 7, 0], atol=0.03)
    np.testing.assert_allclose(frequencies(top_p=0.71), [0, 8 / 17, 0, 6 / 17, 3 / 17], atol=0.03)
    # top-p works on what top-k left: 4/7 alone reaches one half.
    np.testing.assert_allclose(frequencies(top_k=2, top_p=0.5), [0, 1, 0, 0, 0])
    np.testing.assert_allclose(frequencies(top_p=1e-9), [0, 1, 0, 0, 0])
    np.testing.assert_allclose(frequencies(top_k=50), np.exp(LOGITS), atol=0.03)


def test_large_vocabulary_matches_a_full_sort():
    random = np.random.default_rng(0)
    for seed in range(60):
        logits = random.normal(0, random.uniform(0.1, 4), 3000).astype(np.float32)
        top_k, top_p = int(random.choice([0, 1, 40, 2999])), float(random.choice([0.3, 0.9, 1.0]))
        token = draw(logits, params(seed=seed, top_k=top_k, top_p=top_p), 5)
        order = np.argsort(-logits.astype(np.float64), kind="stable")[: top_k or 3000]
        weights = np.exp(logits[order].astype(np.float64) - logits.max())
        below = np.cumsum(weights) - weights
        kept = order[below < top_p * weights.sum() * (1 + 1e-12)]
        assert token in kept


def test_uniform_is_keyed_by_seed_and_position():
    values = {uniform(seed, position) for seed in range(30) for position in range(30)}
    assert len(values) == 900
    assert all(0 <= value < 1 for value in values)
    assert uniform(3, 4) == uniform(3, 4)
    assert 0.45 < np.mean(list(values)) < 0.55
    assert uniform(-1, 2) != uniform(1, 2)


def test_batch_independent(engine):
    ids, table = prompt(30, 1), [0, 1]
    work = item(ids, 0, 30, table, 30, temperature=0.9, seed=5, top_p=0.95)
    alone = step(engine, work).sampled[0].token_id
    others = [item(prompt(9, i), 0, 9, [10 + i], 9, str(i), temperature=1.0, seed=i)
              for i in range(4)]  # fmt: skip
    assert step(engine, *others[:2], work, *others[2:]).sampled[2].token_id == alone


def test_min_tokens_hold_back_the_end():
    logits = torch.tensor([[0.0, 5.0, 4.0, 3.0]])
    for end, expected in ((3, 3), (4, 3), (5, 1)):
        work = item([7] * 9, end - 1, end, [0], 3, min_tokens=2, stop_token_ids=(2,))
        assert sample([work], logits, (1,))[0].token_id == expected


def test_logprobs_are_of_the_raw_logits():
    logits = torch.tensor([[0.0, 2.0, 1.0, -1.0]])
    expected = torch.log_softmax(logits[0], -1).tolist()
    for count in (0, 2, 9):
        work = item([7], 0, 1, [0], 1, temperature=0.0, num_logprobs=count)
        (drawn,) = sample([work], logits, ())
        assert drawn.token_id == 1
        assert drawn.logprob == pytest.approx(expected[1])
        ranks = [(t.token_id, pytest.approx(t.logprob)) for t in drawn.top_logprobs]
        assert ranks == [(i, expected[i]) for i in (1, 2, 0, 3)[:count]]
    (drawn,) = sample([item([7], 0, 1, [0], 1)], logits, ())
    assert drawn.logprob is None
    assert drawn.top_logprobs == ()


def test_verify_digests_the_row():
    rows = torch.randn(2, 50)
    works = [item([7], 0, 1, [0], 1, verify=True), item([7], 0, 1, [0], 1, verify=True)]
    first = [s.logits_digest for s in sample(works, rows, ())]
    rows[1, 3] = torch.nextafter(rows[1, 3], torch.tensor(9.0))
    second = [s.logits_digest for s in sample(works, rows, ())]
    assert first[0] == second[0] != ""
    assert first[1] != second[1]


def test_not_finite_names_the_request():
    with pytest.raises(ArithmeticError, match="logits of r are"):
        sample([item([7], 0, 1, [0], 1)], torch.tensor([[float("nan"), 1.0]]), ())
