"""Bad input: one error object that names the field, and nothing left in the backend."""

import json
import math
from typing import Any

import httpx
import pytest
from gateway_fakes import HANG, MODEL, STARTED, ScriptedBackend, Served, http_post, read_to_end
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baton.core.delivery import Failed
from baton.errors import RequestRejected

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]


def post(http: httpx.Client, path: str, body: Any) -> httpx.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http.post(path, content=data, headers={"content-type": "application/json"})


def refused(answer: httpx.Response, status: int, param: str | None = None) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    if param:
        assert param in error["message"]
    return error


FIELDS = [
    ("n", 0), ("n", 5), ("n", True), ("n", "2"), ("n", 10**30), ("n", 1.5),
    ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", 10**20), ("max_tokens", "x"),
    ("min_tokens", -1), ("temperature", -0.1), ("temperature", 2.5), ("temperature", True),
    ("temperature", "hot"), ("temperature", 10**400), ("top_p", 0), ("top_p", 1.01),
    ("top_k", -2), ("top_k", 2.5), ("top_k", 10**30), ("seed", 1 << 70), ("seed", "a"),
    ("stop", ""), ("stop", ["a", ""]), ("stop", ["x"] * 17), ("stop", [1]), ("stop", "x" * 999),
    ("stop_token_ids", [-1]), ("stop_token_ids", [10**6]), ("stop_token_ids", ["a"]),
    ("stop_token_ids", [0] * 999), ("stream", "yes"), ("stream", 1), ("stream_options", []),
    ("stream_options", {"include_usage": True}), ("cache_salt", ""), ("cache_salt", 5),
    ("ignore_eos", "no"), ("model", 7), ("logprobs", "a"), ("ttft_slo_ms", 0),
    ("ttft_slo_ms", -5), ("ttft_slo_ms", 10**12), ("tpot_slo_ms", "fast"), ("tpot_slo_ms", 0),
]  # fmt: skip
UNSUPPORTED = [
    ("logit_bias", {"5": 1}), ("presence_penalty", 0.5), ("frequency_penalty", -1),
    ("repetition_penalty", 1.1), ("min_p", 0.1), ("best_of", 3), ("suffix", "x"), ("echo", True),
    ("prompt_logprobs", 1), ("response_format", {"type": "json_object"}),
    ("tools", [{"type": "function", "function": {"name": "f"}}]), ("tool_choice", "required"),
    ("tool_choice", {"type": "function"}), ("functions", [{}]), ("modalities", ["audio"]),
    ("guided_json", {}), ("chat_template", "x"), ("use_beam_search", True), ("echo", 0),
    ("include_stop_str_in_output", True), ("audio", {"voice": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), FIELDS + UNSUPPORTED)
def test_bad_field(field: str, value: Any, http: httpx.Client, backend: ScriptedBackend) -> None:
    for path in (CHAT, COMPLETIONS):
        body = {"model": MODEL, "messages": HELLO, "prompt": "hi", field: value}
        answer = post(http, path, body)
        param = answer.json()["error"]["param"]
        assert param.split("[")[0].split(".")[0] == field
        refused(answer, 400, param)
    assert not backend.submitted


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logit_bias", {}), ("presence_penalty", 0), ("presence_penalty", 0.0), ("min_p", 0),
        ("repetition_penalty", 1), ("best_of", 1), ("suffix", None), ("echo", False), ("tools", []),
        ("response_format", {"type": "text"}), ("tool_choice", "none"), ("tool_choice", "auto"),
        ("modalities", ["text"]), ("top_k", -1), ("top_k", 10**6), ("seed", -1), ("stop", []),
        ("user", 5), ("metadata", {"a": "b"}), ("parallel_tool_calls", True), ("stop", None),
    ],
)  # fmt: skip
def test_neutral_values_are_fine(field: str, value: Any, http: httpx.Client) -> None:
    body = {"prompt": "hi", field: value}
    assert post(http, COMPLETIONS, body).status_code == 200


def test_chat_only_fields(http: httpx.Client) -> None:
    def bad(param: str, **fields: Any) -> None:
        refused(post(http, CHAT, {"messages": HELLO, **fields}), 400, param)

    bad("top_logprobs", top_logprobs=2)
    bad("top_logprobs", logprobs=True, top_logprobs=21)
    bad("max_completion_tokens", max_completion_tokens=0)
    bad("max_tokens", max_tokens=3, max_completion_tokens=4)
    bad("min_tokens", max_tokens=3, min_tokens=4)
    refused(post(http, COMPLETIONS, {"prompt": "x", "logprobs": 21}), 400, "logprobs")


IMAGE = {"type": "image_url", "image_url": {"url": "http://x"}}


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("hi", "messages"),
        ([1], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "king", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [IMAGE]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
    ],
)
def test_bad_messages(messages: Any, param: str, http: httpx.Client) -> None:
    refused(post(http, CHAT, {"messages": messages}), 400, param)


@pytest.mark.parametrize(
    "prompt",
    ["", [], [""], [[]], ["a"] * 5, [-1], [10**6], [True], [1, "a"], [[1], "b", 5], [[1.5]], 5,
     {"a": 1}, [[10**30]], None],
)  # fmt: skip
def test_bad_prompt(prompt: Any, http: httpx.Client, backend: ScriptedBackend) -> None:
    refused(post(http, COMPLETIONS, {"prompt": prompt}), 400, "prompt")
    assert not backend.submitted


def test_missing_prompt_and_messages(http: httpx.Client) -> None:
    assert refused(post(http, COMPLETIONS, {}), 400, "prompt")["code"].startswith("missing")
    refused(post(http, CHAT, {}), 400, "messages")


def test_unknown_model(http: httpx.Client) -> None:
    error = refused(post(http, CHAT, {"model": "gpt-5", "messages": HELLO}), 404, "model")
    assert error["code"] == "model_not_found"
    assert MODEL in error["message"]


def test_context_length(http: httpx.Client, backend: ScriptedBackend) -> None:
    ids = [5] * 120
    answer = post(http, COMPLETIONS, {"prompt": ids, "max_tokens": 9})
    assert refused(answer, 400, "max_tokens")["code"] == "context_length_exceeded"
    assert post(http, COMPLETIONS, {"prompt": ids, "max_tokens": 8}).status_code == 200
    assert post(http, COMPLETIONS, {"prompt": ids}).status_code == 200
    assert backend.submitted[-1].sampling.max_tokens == 8
    answer = post(http, COMPLETIONS, {"prompt": [5] * 128})
    assert refused(answer, 400, "prompt")["code"] == "context_length_exceeded"
    answer = post(http, COMPLETIONS, {"prompt": "words " * 10_000})
    assert refused(answer, 400, "prompt")["code"] == "context_length_exceeded"
    long_chat = {"messages": [{"role": "user", "content": "words " * 5_000}]}
    answer = post(http, CHAT, long_chat)  # long enough to be tokenized on a thread
    assert refused(answer, 400, "messages")["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_json"), (b"{", "invalid_json"), (b"[]", "invalid_json"),
        (b"null", "invalid_json"), (b'{"prompt":"x","top_p":NaN}', "invalid_json"),
        (b'{"prompt":"x","top_p":Infinity}', "invalid_json"),
        (b'{"prompt":"x","top_p":1e999}', "invalid_json"),
        (b'{"prompt":"x","a":' + b"[" * 30_000 + b"]" * 30_000 + b"}", "invalid_json"),
        (b'{"prompt":"x","a":' + b"[" * 70 + b"]" * 70 + b"}", "invalid_json"),
        (b'{"prompt":"\xff"}', "invalid_utf8"), (b'{"prompt":"\\ud800 x"}', "invalid_json"),
        (b'{"prompt":"x","seed":' + b"9" * 5000 + b"}", "invalid_json"),
    ],
)  # fmt: skip
def test_malformed_body(data: bytes, code: str, http: httpx.Client) -> None:
    assert refused(post(http, COMPLETIONS, data), 400)["code"] == code


def test_the_last_of_duplicate_keys_counts(http: httpx.Client, backend: ScriptedBackend) -> None:
    assert post(http, COMPLETIONS, b'{"prompt":"a","prompt":[9]}').status_code == 200
    assert backend.submitted[0].prompt_token_ids == (9,)


def test_content_type(http: httpx.Client, served: Served) -> None:
    for media_type, status in (("text/plain", 415), ("application/json; charset=utf-8", 200)):
        answer = http.post(
            COMPLETIONS, content=b'{"prompt":"x"}', headers={"content-type": media_type}
        )
        assert answer.status_code == status
    raw = served.connect()
    raw.sendall(http_post(COMPLETIONS, b'{"prompt":"x"}'))
    assert raw.recv(65536).startswith(b"HTTP/1.1 200")
    raw.close()


@pytest.mark.parametrize("stream", [False, True])
def test_rejected_by_the_backend(
    stream: bool, http: httpx.Client, backend: ScriptedBackend
) -> None:
    rejection = RequestRejected("busy", status=429, code="overloaded", retry_after_s=2.2)
    backend.script = lambda request: [rejection]
    answer = post(http, COMPLETIONS, {"prompt": "x", "stream": stream, "n": 2})
    error = refused(answer, 429)
    assert (error["code"], error["type"]) == ("overloaded", "rate_limit_error")
    assert answer.headers["retry-after"] == "3"


@pytest.mark.parametrize("stream", [False, True])
def test_failed_before_the_start(
    stream: bool, http: httpx.Client, backend: ScriptedBackend
) -> None:
    failed = Failed(code="no_pair", message="no pair", status=503, retry_after_s=0.1)
    backend.script = lambda request: [failed]
    answer = post(http, COMPLETIONS, {"prompt": "x", "stream": stream})
    assert refused(answer, 503)["code"] == "no_pair"
    assert answer.headers["retry-after"] == "1"


def test_failure_inside_a_stream(http: httpx.Client, backend: ScriptedBackend) -> None:
    failures: list[Any] = [
        Failed(code="lost", message="decode worker lost"), RuntimeError("secret detail"),
    ]  # fmt: skip
    for failure in failures:
        backend.script = lambda r, f=failure: [STARTED, *backend.tokens("some text"), f]
        answer = post(http, CHAT, {"messages": HELLO, "stream": True})
        assert answer.status_code == 200
        last = answer.text.strip().split("\n\n")[-1]
        assert set(json.loads(last.removeprefix("data: "))) == {"error"}
        assert "[DONE]" not in answer.text
        assert "secret" not in answer.text


def test_one_failed_output_ends_the_others(http: httpx.Client, backend: ScriptedBackend) -> None:
    failed = Failed(code="lost", message="lost", status=502)
    backend.script = lambda request: (
        [STARTED, HANG] if request.request_id.endswith("-0") else [0.05, failed]
    )
    refused(post(http, COMPLETIONS, {"prompt": "x", "n": 3}), 502)
    assert not backend.held


def test_unexpected_exception(
    http: httpx.Client, backend: ScriptedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.script = lambda request: [ZeroDivisionError("secret detail")]
    answer = post(http, COMPLETIONS, {"prompt": "x"})
    error = refused(answer, 500)
    request_id = backend.submitted[0].request_id
    assert request_id in error["message"]
    assert "secret" not in answer.text
    assert request_id in caplog.text
    assert backend.cancelled == [(request_id, "disconnect")]
    backend.script = lambda request: [STARTED]
    assert post(http, COMPLETIONS, {"prompt": "x"}).status_code == 500


def test_oversize_body(http: httpx.Client, served: Served) -> None:
    answer = post(http, COMPLETIONS, {"prompt": "x" * 100_000})
    assert refused(answer, 413)["code"] == "body_too_large"
    raw = served.connect()
    raw.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 999999999\r\n\r\n{")
    assert read_to_end(raw).startswith(b"HTTP/1.1 413")
    raw.close()
    raw = served.connect()
    raw.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(10):
        raw.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
    assert read_to_end(raw).startswith(b"HTTP/1.1 413")
    raw.close()


def test_slow_body(served: Served) -> None:
    raw = served.connect()
    raw.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
    answer = read_to_end(raw)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"body_timeout"' in answer
    raw.close()


def test_what_is_not_http(served: Served) -> None:
    for data, status in (
        (b"hello there\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\n" + b"x-pad: " + b"y" * 70_000 + b"\r\n\r\n", b"431"),
    ):
        raw = served.connect()
        raw.sendall(data)
        answer = read_to_end(raw)
        assert answer.split()[1] == status
        assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"] == "invalid_http"
        raw.close()


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just(MODEL)
)
NAMES = st.sampled_from(
    ["model", "messages", "prompt", "role", "content", "type", "text", "n", "stream", "stop",
     "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "seed", "logprobs",
     "top_logprobs", "stop_token_ids", "stream_options", "include_usage", "tools", "tool_choice",
     "response_format", "best_of", "logit_bias", "chat_template_kwargs", "name", "tool_calls"]
)  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(NAMES, st.text()), inner, max_size=6)
    ),
    max_leaves=12,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    path=st.sampled_from([CHAT, COMPLETIONS]),
    body=st.dictionaries(NAMES, JSON, max_size=8),
    complete=st.booleans(),
)
def test_arbitrary_json(
    path: str, body: dict[str, Any], complete: bool, http: httpx.Client, served: Served
) -> None:
    if complete:
        body |= {"prompt": "hi", "messages": HELLO}
    answer = post(http, path, body)
    assert answer.status_code in (200, 400, 404), answer.text
    if answer.status_code != 200:
        assert set(answer.json()) == {"error"}
    assert not served.backend.held
    assert all(math.isfinite(request.sampling.temperature) for request in served.backend.submitted)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=60))
def test_arbitrary_bytes(data: bytes, http: httpx.Client) -> None:
    assert post(http, COMPLETIONS, data).status_code == 400
