"""What is asked of vLLM covers what is asked of our own engine, by name, or says why not."""

import socket

import pytest
from rich.console import Console

from baton.bench.compare.builtin import builtin_cases
from baton.bench.vllm.asking import Answer, Output
from baton.bench.vllm.cases import Shape, VllmAsk, unasked, vllm_cases
from baton.bench.vllm.side import _body, ask_side, stop_in
from baton.config import WorkerConfig
from baton.errors import BatonError

VOCABULARY = list(range(300, 340))


@pytest.mark.parametrize("is_tight", [True, False])
def test_every_case_of_our_own_engine_is_asked_or_named_with_its_reason(is_tight):
    shape = Shape(block=32, step=256, is_tight=is_tight)
    names = [case.name for case in vllm_cases(shape, VOCABULARY)]
    assert len(names) == len(set(names))
    wanted = {case.name for case in builtin_cases(WorkerConfig())}
    assert wanted - set(names) == set(unasked(shape))
    assert all(unasked(shape).values())


def test_lengths_meet_the_edges_of_blocks_and_steps():
    shape = Shape(block=32, step=256, is_tight=True)
    lengths = {
        len(one.body["prompt"])
        for case in vllm_cases(shape, VOCABULARY)
        if case.name.startswith("length-")
        for asked in case.rounds
        for one in asked.asks
    }
    edges = {n * 32 + d for n in (1, 2, 7) for d in (-1, 0, 1)} | {255, 256, 257}
    assert {1} | edges <= lengths and max(lengths) > 3 * 256


def test_seeded_prompts_of_a_round_fit_into_one_step():
    for case in vllm_cases(Shape(block=32, step=640, is_tight=True), VOCABULARY):
        for asked in case.rounds:
            bodies = [one.body for one in asked.asks if "seed" in one.body]
            prompts = [body.get("prompt", "") for body in bodies]
            assert sum(map(len, prompts)) <= 640, case.name


def test_a_hit_begins_as_what_was_warmed_and_bounds_what_may_be_cached():
    cases = {case.name: case for case in vllm_cases(Shape(block=32, step=256), VOCABULARY)}
    for hit in range(5):
        for name, cached in (("tail", 32 * hit), ("edge", 32 * min(hit, 3))):
            warm, full = cases[f"hit-{name}-{hit}"].rounds
            begun, whole = warm.asks[0].body["prompt"], full.asks[0].body["prompt"]
            assert whole[: 32 * hit] == begun[: 32 * hit]
            assert full.asks[0].reused == (cached, cached)


def test_a_turn_goes_on_after_the_answer_and_a_stop_is_a_piece_of_it():
    before = {"prompt": [1, 2]}, Answer(outputs={0: Output(token_ids=[3, 4], text="abcdefgh")})
    one = VllmAsk(body={"prompt": [9]}, follows=0)
    assert _body(one, [before])["prompt"] == [1, 2, 3, 4, 9]
    assert _body(VllmAsk(body={"prompt": "p"}, stop_from=0), [before])["stop"] == ["efg"]
    assert stop_in("") == "the"


async def test_a_plain_server_that_does_not_answer_is_no_reference():
    cases = vllm_cases(Shape(block=32, step=256), VOCABULARY)[:1]
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and it does not listen
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(BatonError, match=r"length-one-token: .* alone answers Client"):
            await ask_side(url, None, cases, "salt", Console())
