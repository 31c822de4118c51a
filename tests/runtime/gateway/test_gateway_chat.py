"""The endpoints as the official client sees them."""

import itertools
from typing import Any

import httpx
import msgspec
import openai
import pytest
from gateway_fakes import (
    HANG,
    MODEL,
    STARTED,
    ScriptedBackend,
    Served,
    model_info,
    tiny_tokenizer,
)

from baton.core.delivery import Finished, Tokens
from baton.core.ids import Mode
from baton.core.request import Usage
from baton.runtime.gateway.prompts import chat_prompts, completion_prompts
from baton.runtime.gateway.schema import ChatBody, CompletionBody, Message

HELLO: list[Any] = [{"role": "user", "content": "hi"}]


def test_chat(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, user="me", store=True)
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Hello!", "stop")
    assert answer.id == "chatcmpl-" + backend.submitted[0].request_id
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer.usage.completion_tokens == len(backend.tokens("Hello!"))
    prompt = backend.tokenizer.decode(
        backend.submitted[0].prompt_token_ids, skip_special_tokens=False
    )
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_chat_parameters_reach_the_backend(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
            *HELLO,
        ],
        max_completion_tokens=9,
        temperature=0.25,
        top_p=0.5,
        seed=7,
        logprobs=True,
        top_logprobs=2,
        extra_body={
            "top_k": 4,
            "min_tokens": 2,
            "ignore_eos": True,
            "stop_token_ids": [5, 6],
            "cache_salt": "pepper",
            "no_such_field": {"a": 1},
        },
    )
    request = backend.submitted[0]
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.min_tokens, sampling.top_k) == (9, 2, 4)
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.25, 0.5, 7)
    assert (sampling.ignore_eos, sampling.stop_token_ids) == (True, (5, 6))
    assert (sampling.num_logprobs, request.cache_salt) == (2, "pepper")
    text = backend.tokenizer.decode(request.prompt_token_ids, skip_special_tokens=False)
    assert text.startswith("<|im_start|>system\nbe brief<|im_end|>")


def test_defaults(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    client.chat.completions.create(model=MODEL, messages=HELLO)
    client.completions.create(model=MODEL, prompt="hi")
    chat, completion = backend.submitted
    assert chat.sampling.max_tokens == 128 - chat.num_prompt_tokens
    assert completion.sampling.max_tokens == 16
    assert chat.sampling.seed != completion.sampling.seed
    assert (chat.sampling.temperature, chat.sampling.num_logprobs) == (1.0, -1)


def test_chat_stream(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == "Hello!"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert not chunks[-1].choices
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(backend.tokens("Hello!"))
    assert len({chunk.id for chunk in chunks}) == 1


def test_stream_on_the_wire(http: httpx.Client) -> None:
    body = {"model": MODEL, "messages": HELLO, "stream": True}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-baton-mode"] == "disaggregated"
    assert answer.headers["x-baton-prefill-worker"] == "p0"
    assert answer.headers["x-baton-decode-worker"] == "d0"
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert '"role":"assistant"' in events[0]
    assert '"usage"' not in answer.text


def test_role_comes_with_the_first_token_not_before(
    served: Served, backend: ScriptedBackend
) -> None:
    backend.script = lambda request: [STARTED, 0.2, *backend.says(request, "Hi")[1:]]
    raw = served.post_raw("/v1/chat/completions", {"messages": HELLO, "stream": True})
    first = raw.recv(65536)
    assert b"text/event-stream" in first
    assert b"data:" not in first
    second = raw.recv(65536)
    assert b"assistant" in second
    assert b'"content":"' in second
    raw.close()


def test_continuous_usage(http: httpx.Client, backend: ScriptedBackend) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": "hi", "stream": True, "stream_options": options}
    text = http.post("/v1/completions", json=body).text
    assert '"completion_tokens":1,' in text
    assert '"usage":null' not in text


def test_completions_prompt_forms(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    for prompt, num_prompts in (("hi", 1), (["a", "b"], 2), ([5, 6], 1), ([[5], [6, 7]], 2)):
        backend.reset()
        backend.script = lambda request: backend.says(request, f"<{len(backend.submitted)}>")
        answer = client.completions.create(model=MODEL, prompt=prompt, n=2)  # type: ignore
        assert [choice.index for choice in answer.choices] == list(range(2 * num_prompts))
        by_prompt = [r.prompt_token_ids for r in backend.submitted]
        assert len({r.request_id for r in backend.submitted}) == 2 * num_prompts
        assert by_prompt[0] == by_prompt[1]
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == sum(len(ids) for ids in by_prompt[::2])
        assert answer.usage.completion_tokens == sum(
            len(backend.tokens(choice.text)) for choice in answer.choices
        )


def test_n_uses_consecutive_seeds(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    client.completions.create(model=MODEL, prompt=["a", "b"], n=3, seed=40)
    assert [request.sampling.seed for request in backend.submitted] == [40, 41, 42] * 2


def test_cached_tokens_are_those_of_the_choice_that_paid(
    client: openai.OpenAI, backend: ScriptedBackend
) -> None:
    cached = itertools.count(2, 5)

    def script(request: Any) -> list[Any]:
        usage = Usage(prompt_tokens=1, completion_tokens=1, cached_tokens=next(cached))
        return [STARTED, *backend.tokens("x"), Finished(finish_reason="stop", usage=usage)]

    backend.script = script
    answer = client.completions.create(model=MODEL, prompt="hello", n=3)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 2


def test_interleaved_stream(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    def script(request: Any) -> list[Any]:
        pauses = [0.01] * 5
        steps = backend.says(request, f"choice {request.request_id[-1]}")
        return [s for pair in itertools.zip_longest(steps, pauses) for s in pair if s is not None]

    backend.script = script
    texts = {0: "", 1: "", 2: ""}
    order = []
    stream = client.chat.completions.create(model=MODEL, messages=HELLO, n=3, stream=True)
    for chunk in stream:
        choice = chunk.choices[0]
        texts[choice.index] += choice.delta.content or ""
        order.append(choice.index)
    assert texts == {index: f"choice {index}" for index in range(3)}
    assert order != sorted(order)


def test_mode_header_without_stream(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    modes = itertools.cycle(Mode)

    def script(request: Any) -> list[Any]:
        started = STARTED.__class__(mode=next(modes), prefill_worker="w", decode_worker="w")
        return [started, *backend.says(request, "x")[1:]]

    backend.script = script
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, n=2)
    assert raw.headers["x-baton-mode"] == "colocated,disaggregated"


def test_chat_logprobs(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    backend.script = lambda request: backend.says(request, "né")
    arguments: Any = {"model": MODEL, "messages": HELLO, "logprobs": True, "top_logprobs": 1}
    answer = client.chat.completions.create(**arguments)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    data = b"".join(bytes(entry.bytes or []) for entry in logprobs.content)
    assert data.decode() == "né"
    assert logprobs.content[0].logprob == -0.5
    assert len(logprobs.content[0].top_logprobs) == 1
    streamed = []
    for chunk in client.chat.completions.create(stream=True, **arguments):
        part = chunk.choices[0].logprobs
        streamed += part.content or [] if part else []
    assert [entry.token for entry in streamed] == [entry.token for entry in logprobs.content]


def test_completion_logprobs(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    answer = client.completions.create(model=MODEL, prompt="x", logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert "".join(logprobs.tokens) == "Hello!"
    assert logprobs.text_offset == list(
        itertools.accumulate(map(len, logprobs.tokens[:-1]), initial=0)
    )
    assert logprobs.top_logprobs is not None
    assert -9999.0 in logprobs.top_logprobs[0].values()


def test_completion_logprobs_of_parts_of_a_character(
    client: openai.OpenAI, backend: ScriptedBackend
) -> None:
    backend.script = lambda request: backend.says(request, "aé!")
    logprobs = client.completions.create(model=MODEL, prompt="x", logprobs=0).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["a", "bytes:\\xc3", "bytes:\\xa9", "!"]
    assert logprobs.text_offset == [0, 1, 1, 2]
    assert logprobs.top_logprobs is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_stop_string(path: str, stream: bool, http: httpx.Client, backend: ScriptedBackend) -> None:
    backend.script = lambda request: [
        STARTED, *backend.tokens("hello world, the quick"), HANG,
    ]  # fmt: skip
    body: dict[str, Any] = {
        "prompt": "x", "messages": HELLO, "stop": ["zzz", "d, t"], "stream": stream,
    }  # fmt: skip
    if stream:
        body["stream_options"] = {"include_usage": True}
    answer = http.post(path, json=body)
    request_id = backend.submitted[0].request_id
    assert backend.cancelled == [(request_id, "stop")]
    assert '"finish_reason":"stop"' in answer.text
    assert '"cached_tokens":7' in answer.text
    assert ", t" not in answer.text.replace('", "', "")
    if not stream:
        choice = answer.json()["choices"][0]
        assert (choice.get("text") or choice["message"]["content"]) == "hello worl"
        num_tokens = len(backend.tokens("hello world, the"))
        assert answer.json()["usage"]["completion_tokens"] == num_tokens


def test_stop_string_waits_for_min_tokens(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    backend.script = lambda request: backend.says(request, "ababab", "length")
    answer = client.completions.create(
        model=MODEL, prompt="x", stop="b", extra_body={"min_tokens": 4}, max_tokens=8
    )
    assert answer.choices[0].text == "aba"
    assert answer.choices[0].finish_reason == "stop"


def test_unfinished_stop_string_is_shown_at_the_end(
    client: openai.OpenAI, backend: ScriptedBackend
) -> None:
    backend.script = lambda request: backend.says(request, "hello wor", "length")
    stream = client.completions.create(model=MODEL, prompt="x", stop="world", stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "hello wor"
    assert chunks[-1].choices[0].finish_reason == "length"


def test_stop_tokens_are_not_text(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    token_id = backend.tokenizer.encode("!")[0]
    answer = client.completions.create(
        model=MODEL, prompt="x", extra_body={"stop_token_ids": [token_id]}
    )
    assert answer.choices[0].text == "Hello"


def test_characters_are_never_cut(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    text = "né 日本 👩‍🚀\u2028\u0085end"
    backend.script = lambda request: backend.says(request, text)
    stream = client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_no_line_break_inside_an_event(http: httpx.Client, backend: ScriptedBackend) -> None:
    backend.script = lambda request: backend.says(request, "a\u2028b\u0085c\u2029d\re\n")
    body = {"prompt": "x", "stream": True}
    text = http.post("/v1/completions", json=body).text
    lines = [line for line in text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)


def test_several_tokens_in_one_delivery(client: openai.OpenAI, backend: ScriptedBackend) -> None:
    def script(request: Any) -> list[Any]:
        tokens = tuple(t for part in backend.tokens("one two three") for t in part.tokens)
        usage = Usage(prompt_tokens=1, completion_tokens=len(tokens))
        return [STARTED, Tokens(tokens=tokens), Finished(finish_reason="length", usage=usage)]

    backend.script = script
    answer = client.completions.create(model=MODEL, prompt="x")
    assert answer.choices[0].text == "one two three"
    answer = client.completions.create(model=MODEL, prompt="x", stop="two")
    assert answer.choices[0].text == "one "


async def test_long_prompts_are_tokenized_on_a_thread() -> None:
    tokenizer = tiny_tokenizer()
    info = msgspec.structs.replace(model_info(tokenizer), max_model_len=1 << 20)
    text = "hello world " * 5_000
    [ids] = await completion_prompts(CompletionBody(prompt=text), tokenizer, info, 4)
    assert tokenizer.decode(ids) == text
    body = ChatBody(messages=[Message(role="user", content=text)])
    [ids] = await chat_prompts(body, tokenizer, info)
    assert text in tokenizer.decode(ids)
