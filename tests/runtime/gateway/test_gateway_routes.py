"""Health, readiness, models, metrics, version; and the refusals that need no body."""

import concurrent.futures

import httpx
import msgspec
import openai
from gateway_fakes import CONFIG, MODEL, ScriptedBackend, running_server
from prometheus_client.parser import text_string_to_metric_families


def test_models(client: openai.OpenAI, http: httpx.Client) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert http.get(f"/v1/models/{MODEL}").json()["max_model_len"] == 128
    missing = http.get("/v1/models/other")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_health_and_readiness(http: httpx.Client, backend: ScriptedBackend) -> None:
    assert http.get("/ready").json() == {"status": "ready"}
    backend.not_ready = "no decode worker"
    assert http.get("/health").status_code == 200
    for answer in (http.get("/ready"), http.post("/v1/completions", json={"prompt": "x"})):
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert "no decode worker" in answer.json()["error"]["message"]
    backend.not_ready = ""
    info, backend.info = backend.info, None
    try:
        assert http.get("/ready").status_code == 503
        assert http.get("/v1/models").json()["data"][0]["max_model_len"] is None
        assert http.post("/v1/completions", json={"prompt": "x"}).status_code == 503
    finally:
        backend.info = info


def test_version(http: httpx.Client) -> None:
    status = {"workers": 2}
    expected = {"version": "1.2.3", "model": MODEL, "status": status, "deployment": None}
    assert http.get("/version").json() == expected


def test_unknown_path_and_wrong_method(http: httpx.Client) -> None:
    missing = http.get("/v2/none")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_path")
    wrong = http.get("/v1/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert wrong.json()["error"]["code"] == "method_not_allowed"
    assert http.delete("/health").status_code == 405
    assert http.head("/health").status_code == 200


def values(http: httpx.Client) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(http.get("/metrics").text):
        for sample in family.samples:
            if "le" not in sample.labels:
                labels = {k: v for k, v in sample.labels.items() if k != "model_name"}
                found[sample.name + "".join(f"|{v}" for v in labels.values())] = sample.value
    return found


def test_metrics(http: httpx.Client, backend: ScriptedBackend) -> None:
    before = values(http)
    body = {"prompt": "hello", "kv_transfer_params": {"remote_host": "evil"}, "remote_port": 1}
    answer = http.post("/v1/completions", json=body, headers={"x-prefiller-host-port": "evil:1"})
    assert answer.status_code == 200
    http.post("/v1/completions", json={"prompt": ""})
    after = values(http)

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    usage = answer.json()["usage"]
    for prefix in ("baton_", "vllm:"):
        assert grown(prefix + "time_to_first_token_seconds_count") == 1
        assert grown(prefix + "inter_token_latency_seconds_count") == usage["completion_tokens"] - 1
        assert grown(prefix + "time_per_output_token_seconds_count") == 1
        assert grown(prefix + "e2e_request_latency_seconds_count") == 1
        assert grown(prefix + "prompt_tokens_total") == usage["prompt_tokens"]
        assert grown(prefix + "generation_tokens_total") == usage["completion_tokens"]
        assert grown(prefix + "request_success_total|stop") == 1
        assert after[prefix + "num_requests_running"] == 0
        assert after[prefix + "num_requests_waiting"] == 0
    assert grown("baton_prompt_tokens_cached_total") == 3
    assert grown("baton_requests_by_mode_total|disaggregated") == 1
    for field in ("kv_transfer_params", "remote_*", "x-prefiller-host-port"):
        assert grown(f"baton_steering_fields_dropped_total|{field}") == 1
    assert grown("baton_http_responses_total|/v1/completions|200") == 1
    assert grown("baton_http_responses_total|/v1/completions|400") == 1
    assert after["backend_up"] == 1


def test_request_ids(http: httpx.Client, backend: ScriptedBackend) -> None:
    def post(request_id: str) -> httpx.Response:
        return http.post(
            "/v1/completions", json={"prompt": "x"}, headers={"x-request-id": request_id}
        )

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(post, ["same id!"] * 4))
    assert {answer.headers["x-request-id"] for answer in answers} == {"sameid"}
    assert len({request.request_id for request in backend.submitted}) == 4
    assert {request.client_request_id for request in backend.submitted} == {"sameid"}
    assert len(post("x" * 1000).headers["x-request-id"]) == 128
    minted = http.post("/v1/completions", json={"prompt": "x"})
    assert minted.json()["id"] == "cmpl-" + minted.headers["x-request-id"]


def test_clearing_the_cache_is_for_operators(http: httpx.Client, backend: ScriptedBackend) -> None:
    refused = http.post("/cache/clear", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (
        403,
        "cache_clear_not_allowed",
    )
    assert "gateway.allow_cache_clear" in refused.json()["error"]["message"]
    assert http.get("/cache").json() == {"generation": backend.generation} == {"generation": 0}
    assert http.get("/cache/clear").headers["allow"] == "POST"


def test_clearing_the_cache_where_it_is_allowed() -> None:
    config = msgspec.structs.replace(CONFIG, allow_cache_clear=True)
    with (
        running_server(config) as served,
        httpx.Client(base_url=served.url, timeout=10, trust_env=False) as http,
    ):
        # What a browser sends across origins without asking clears nothing.
        for headers in ({}, {"content-type": "text/plain"}):
            refused = http.post("/cache/clear", content=b"{}", headers=headers)
            assert (refused.status_code, refused.json()["error"]["param"]) == (415, "content-type")
        assert served.backend.generation == 0
        assert http.post("/cache/clear", json={}).json() == {"generation": 1}
        assert http.get("/cache").json() == {"generation": 1}
