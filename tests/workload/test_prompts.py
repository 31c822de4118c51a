"""Made prompts: deterministic, of the right length, sharing exactly what their hash ids share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import ConfigError
from baton.workload.fit import scale
from baton.workload.load import load_trace
from baton.workload.prompts import prompt_tokens, workload_prompts
from baton.workload.request import Workload, WorkloadRequest
from tests.data import data_file

VOCAB = 50_000


def request(length: int, *hash_ids: int, arrival_us: int = 0) -> WorkloadRequest:
    return WorkloadRequest(
        arrival_us=arrival_us, num_prompt_tokens=length, num_output_tokens=1, hash_ids=hash_ids
    )


def tokens(one: WorkloadRequest, **options) -> tuple[int, ...]:
    defaults = {"vocab_size": VOCAB, "tokens_per_hash": 16, "seed": 1}
    return prompt_tokens(one, **(defaults | options))


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@given(
    ids=st.tuples(st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(0, 3), max_size=4)),
    lengths=st.tuples(st.integers(1, 80), st.integers(1, 80)),
    seed=st.integers(0, 2**63),
)
def test_equal_leading_hash_ids_are_equal_leading_tokens_and_no_more(ids, lengths, seed):
    one, other = (request(n, *h) for n, h in zip(lengths, ids, strict=True))
    first, second = tokens(one, seed=seed), tokens(other, seed=seed, index=1)
    assert (len(first), len(second)) == lengths
    common = min(shared(ids[0], ids[1]) * 16, *lengths)
    # Beyond the shared blocks, two tokens are alike once in 50 000 draws, so a few may be.
    assert common <= shared(first, second) <= common + 2
    assert first == tokens(one, seed=seed)


def test_requests_without_hash_ids_share_nothing_even_if_they_are_alike():
    workload = Workload(name="w", source="s", requests=(request(40),) * 50)
    prompts = list(workload_prompts(workload, vocab_size=VOCAB, seed=7))
    assert prompts == list(workload_prompts(workload, vocab_size=VOCAB, seed=7))
    assert len({one[:3] for one in prompts}) == 50


def test_what_no_hash_id_covers_belongs_to_the_request_alone():
    one, other = request(40, 5, arrival_us=1), request(40, 5, arrival_us=2)
    assert shared(tokens(one), tokens(other)) == 16


def test_another_seed_is_another_prompt():
    assert shared(tokens(request(64, 0, 1), seed=1), tokens(request(64, 0, 1), seed=2)) < 2


def test_excluded_tokens_never_occur_and_all_others_do():
    made = tokens(request(5000), vocab_size=12, exclude=frozenset({0, 7, 11, 99}))
    assert set(made) == {1, 2, 3, 4, 5, 6, 8, 9, 10}
    assert all(type(one) is int for one in made[:3])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"vocab_size": 0}, "vocab_size = 0"),
        ({"vocab_size": 2, "exclude": frozenset({0, 1})}, "all 2 tokens are excluded"),
        ({"tokens_per_hash": 0}, "tokens_per_hash = 0"),
    ],
)
def test_prompts_that_cannot_be_made(options, part):
    with pytest.raises(ConfigError, match=part):
        tokens(request(4, 1), **options)


def test_the_blocks_of_a_real_trace_are_reused_as_its_hash_ids_say():
    path = data_file("mooncake/conversation_trace.jsonl.gz")
    workload = scale(load_trace(path, limit=300), 32)
    seen: set[tuple[int, ...]] = set()
    known: set[int] = set()
    size = workload.tokens_per_hash
    prompts = workload_prompts(workload, vocab_size=VOCAB, seed=3)
    for one, prompt in zip(workload.requests, prompts, strict=True):
        assert len(prompt) == one.num_prompt_tokens
        for number, hash_id in enumerate(one.hash_ids[: len(prompt) // size]):
            block = prompt[number * size : (number + 1) * size]
            assert (block in seen) == (hash_id in known)
            seen.add(block)
            known.add(hash_id)
    assert len(seen) == len(known) > 1000
