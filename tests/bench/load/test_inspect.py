"""What is found out of servers that take less than everything."""

import pytest
from scripted_server import DONE, HEAD, Connection, scripted, text, usage

from baton.bench.load import Endpoint, LoadOptions, Target, inspect_target, run_load
from baton.errors import BatonError, ConfigError
from baton.workload.request import Workload, WorkloadRequest


def counting(*, tokens: bool, refused: tuple[str, ...] = (), vocab_size: int = 1 << 30):
    """A server that counts two tokens a word and one in front, as a small tokenizer might."""

    async def script(connection: Connection):
        body = connection.body
        prompt = body.get("prompt") or body["messages"][0]["content"]
        bad = [name for name in refused if name in body]
        is_list = isinstance(prompt, list)
        if bad or (is_list and (not tokens or max(prompt) >= vocab_size)):
            await connection.answer(400, {"error": {"message": f"bad {bad}", "code": "bad"}})
            return
        num = len(prompt) if is_list else 2 * len(prompt.split()) + 1
        await connection.raw(HEAD)
        await connection.say(text("a") + text("b", "length") + usage(num, 2) + DONE)
        await connection.end()

    return script


async def test_token_ids_are_used_where_they_are_taken():
    async with scripted(counting(tokens=True)) as server:
        found = await inspect_target(Target(base_url=server.url))
    assert found.model == "m" and found.max_model_len == 512
    assert found.vocab_size == 4096 and "ignore_eos" in found.extra_fields


async def test_a_small_vocabulary_is_found():
    async with scripted(counting(tokens=True, vocab_size=260)) as server:
        found = await inspect_target(Target(base_url=server.url))
    assert found.vocab_size == 256


@pytest.mark.parametrize("endpoint", list(Endpoint))
async def test_text_prompts_are_calibrated_and_meet_the_wanted_length(endpoint):
    async with scripted(counting(tokens=False)) as server:
        target = Target(base_url=server.url, endpoint=endpoint)
        found = await inspect_target(target)
        request = WorkloadRequest(arrival_us=0, num_prompt_tokens=101, num_output_tokens=2)
        workload = Workload(name="w", source="t", requests=(request,))
        [record] = await run_load(target, workload, LoadOptions(abilities=found))
    assert found.vocab_size == 0
    assert found.tokens_per_word == pytest.approx(2) and found.overhead_tokens == pytest.approx(1)
    assert record.num_prompt_tokens == 101


async def test_refused_fields_are_left_out():
    refused = ("ignore_eos", "skip_special_tokens")
    async with scripted(counting(tokens=True, refused=refused)) as server:
        target = Target(base_url=server.url)
        found = await inspect_target(target)
        request = WorkloadRequest(arrival_us=0, num_prompt_tokens=9, num_output_tokens=2)
        await run_load(
            target,
            Workload(name="w", source="t", requests=(request,)),
            LoadOptions(abilities=found),
        )
        assert not set(refused) & set(server.requests[-1][1])
    assert found.extra_fields == {"seed", "stream_options"}


async def test_shared_prefixes_stay_shared_in_words():
    async with scripted(counting(tokens=False)) as server:
        target = Target(base_url=server.url)
        requests = tuple(
            WorkloadRequest(
                arrival_us=at, num_prompt_tokens=60, num_output_tokens=2, hash_ids=(1, 2 + at)
            )
            for at in range(2)
        )
        workload = Workload(name="w", source="t", requests=requests, tokens_per_hash=32)
        await run_load(target, workload, LoadOptions())
    first, second = (body["prompt"].split() for _, body in server.requests[-2:])
    assert first[:16] == second[:16] and first[16:] != second[16:]


async def test_an_unknown_model_names_those_that_are_served():
    async with scripted(counting(tokens=True)) as server:
        with pytest.raises(ConfigError, match=r"'nope' is not served .* use one of 'm'"):
            await inspect_target(Target(base_url=server.url, model="nope"))


async def test_no_server_is_one_clear_line():
    with pytest.raises(BatonError, match=r"no server at http://127.0.0.1:1/v1/models: .*--url"):
        await inspect_target(Target(base_url="http://127.0.0.1:1"))


async def test_a_server_that_answers_nothing_useful_is_named():
    async def script(connection):
        await connection.answer(503, {"error": {"message": "loading", "code": "not_ready"}})

    async with scripted(script) as server:
        with pytest.raises(BatonError, match="HTTP 503: not_ready loading"):
            await inspect_target(Target(base_url=server.url))
