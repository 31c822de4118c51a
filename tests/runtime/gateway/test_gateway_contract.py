"""Classes of faults at the HTTP edge, over every endpoint that generates, streamed and whole."""

import json
from typing import Any

import httpx
import msgspec
import pytest
from gateway_fakes import STARTED, ScriptedBackend
from prometheus_client.parser import text_string_to_metric_families

from baton.core.delivery import Failed
from baton.core.ids import Mode
from baton.core.request import Request
from baton.runtime.gateway.unsupported import STEERING_FIELDS, STEERING_HEADERS

HELLO = [{"role": "user", "content": "hi"}]
ENDPOINTS = {"/v1/chat/completions": {"messages": HELLO}, "/v1/completions": {"prompt": "hi"}}

every_endpoint = pytest.mark.parametrize("path", ENDPOINTS)
every_form = pytest.mark.parametrize("stream", [False, True])


def post(
    http: httpx.Client, path: str, headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    return http.post(path, json={**ENDPOINTS[path], **fields}, headers=headers)


def bare(request: Request) -> Request:
    """What a worker is told, without what is minted anew for every request."""
    return msgspec.structs.replace(request, request_id="", client_request_id="", arrival_us=0)


def counters(http: httpx.Client, name: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(http.get("/metrics").text):
        for sample in family.samples:
            if sample.name == name:
                labels = [v for key, v in sample.labels.items() if key != "model_name"]
                found["|".join(labels)] = sample.value
    return found


@every_endpoint
@every_form
@pytest.mark.parametrize("mode", Mode)
def test_mode_that_changes_silently(
    mode: Mode, path: str, stream: bool, http: httpx.Client, backend: ScriptedBackend
) -> None:
    started = msgspec.structs.replace(STARTED, mode=mode)
    backend.script = lambda request: [started, *backend.says(request, "x")[1:]]
    before = counters(http, "baton_requests_by_mode_total").get(mode, 0)
    answer = post(http, path, stream=stream)
    assert answer.status_code == 200
    assert answer.headers["x-baton-mode"] == mode
    assert counters(http, "baton_requests_by_mode_total")[mode] == before + 1


@every_endpoint
def test_endpoint_without_handoff(path: str, http: httpx.Client, backend: ScriptedBackend) -> None:
    """Every endpoint that generates goes the one way down; what is not built is no plain path."""
    for stream in (False, True):
        answer = post(http, path, stream=stream, seed=7)
        assert answer.status_code == 200
        assert answer.headers["x-baton-prefill-worker"] == "p0"
        assert answer.headers["x-baton-decode-worker"] == "d0"
    assert len({bare(request) for request in backend.submitted}) == 1
    for other in ("/v1/responses", "/v1/embeddings", "/generate", "/v1/messages"):
        missing = http.post(other, json={"prompt": "hi", "input": "hi", "messages": HELLO})
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_path")
    assert len(backend.submitted) == 2


@every_endpoint
def test_body_inherited_blindly(path: str, http: httpx.Client, backend: ScriptedBackend) -> None:
    """How an answer is shown is the edge's own business: a worker is told the same either way."""
    shown: list[dict[str, Any]] = [
        {},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "somebody", "store": True, "metadata": {"a": "b"}},
        {"stop": "never"},
    ]
    for fields in shown:
        assert post(http, path, seed=5, max_tokens=9, min_tokens=2, **fields).status_code == 200
    requests = [bare(request) for request in backend.submitted]
    assert requests == [requests[0]] * len(shown)
    assert (requests[0].sampling.max_tokens, requests[0].sampling.min_tokens) == (9, 2)


@every_endpoint
@every_form
def test_topology_trusted_from_a_client(
    path: str, stream: bool, http: httpx.Client, backend: ScriptedBackend
) -> None:
    """No field and no header steers a transfer; each one that tries is dropped and counted."""
    assert post(http, path, stream=stream, seed=1).status_code == 200
    evil = {"remote_host": "10.0.0.1", "remote_port": 1, "remote_engine_id": "x"}
    for field in (*sorted(STEERING_FIELDS), "remote_host", "remote_block_ids"):
        name = "remote_*" if field.startswith("remote_") else field
        before = counters(http, "baton_steering_fields_dropped_total").get(name, 0)
        assert post(http, path, stream=stream, seed=1, **{field: evil}).status_code == 200
        assert counters(http, "baton_steering_fields_dropped_total")[name] == before + 1
    for header in STEERING_HEADERS:
        answer = post(http, path, {header.decode(): "10.0.0.1:1"}, stream=stream, seed=1)
        assert answer.status_code == 200
    requests = [bare(request) for request in backend.submitted]
    assert requests == [requests[0]] * len(requests)


@every_endpoint
@every_form
@pytest.mark.parametrize("value", [0, 1, 5, True])
def test_prompt_side_field_that_a_decode_worker_cannot_answer(
    value: Any, path: str, stream: bool, http: httpx.Client, backend: ScriptedBackend
) -> None:
    answer = post(http, path, stream=stream, prompt_logprobs=value)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt_logprobs"
    assert not backend.submitted
    assert post(http, path, stream=stream).status_code == 200


@every_endpoint
@pytest.mark.parametrize("num_tokens", range(5))
def test_failure_that_leaves_a_stream_open(
    num_tokens: int, path: str, http: httpx.Client, backend: ScriptedBackend
) -> None:
    """Wherever a stream breaks it ends with one error, and never like a success."""
    failed = Failed(code="attempts_exhausted", message="no worker is left", status=503)
    backend.script = lambda request: [
        STARTED,
        *backend.tokens("one two three four five")[:num_tokens],
        failed,
    ]
    answer = post(http, path, stream=True)
    assert "[DONE]" not in answer.text
    if answer.status_code == 200:
        last = answer.text.strip().split("\n\n")[-1].removeprefix("data: ")
        assert json.loads(last)["error"]["code"] == "attempts_exhausted"
    else:
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "attempts_exhausted"
        assert num_tokens == 0
    whole = post(http, path)
    assert whole.status_code == 503
    assert whole.json()["error"]["code"] == "attempts_exhausted"


@every_endpoint
@every_form
def test_reuse_reported_by_who_received_the_state(
    path: str, stream: bool, http: httpx.Client, backend: ScriptedBackend
) -> None:
    """The usage shown is the worker's own account of the prompt, once."""
    options = {"stream_options": {"include_usage": True}} if stream else {}
    answer = post(http, path, stream=stream, **options)
    if stream:
        events = [e.removeprefix("data: ") for e in answer.text.strip().split("\n\n")]
        (usage,) = [u for e in events[:-1] if (u := json.loads(e).get("usage"))]
    else:
        usage = answer.json()["usage"]
    (request,) = backend.submitted
    assert usage["prompt_tokens"] == request.num_prompt_tokens
    assert usage["prompt_tokens_details"]["cached_tokens"] == 3
