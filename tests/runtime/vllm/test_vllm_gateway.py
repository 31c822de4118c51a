"""The gateway in front of vLLM servers: bodies of both legs, answers, usage, modes."""

import json
import re

import pytest
from tests.runtime.vllm.faulty_vllm import REUSED, expected_text
from tests.runtime.vllm.front import BODY, ask, get, pair

from baton.config import load_config
from baton.errors import BatonError
from baton.runtime.vllm import serve
from baton.runtime.vllm.bodies import PROMPT_FIELDS


async def test_a_stream_passes_through_both_legs():
    async with pair() as (front, (prefill,), (decode,)):
        body = {**BODY, "stream": True, "min_tokens": 3, "temperature": 0.5, "user": "me"}
        got = await ask(front, body)
        assert got.status == 200 and got.is_done
        assert got.text() == expected_text(BODY)
        assert got.headers["x-baton-mode"] == "disaggregated"
        assert got.headers["x-baton-prefill-worker"] == "prefill-0"
        assert got.headers["x-baton-decode-worker"] == "decode-0"
        ((leg, sent, headers),) = prefill.requests
        assert leg == "prefill" and sent["max_tokens"] == sent["max_completion_tokens"] == 1
        extra = {"max_tokens", "max_completion_tokens", "stream", "temperature"}
        assert set(sent) <= PROMPT_FIELDS | extra | {"kv_transfer_params"}
        assert sent["stream"] is False
        ((_, sent, decode_headers),) = decode.requests
        assert sent["min_tokens"] == 3 and sent["kv_transfer_params"]["remote_engine_id"] == "p0"
        assert headers["x-request-id"] == decode_headers["x-request-id"]
        assert set(prefill.handles.values()) == {"read"}


@pytest.mark.parametrize("n", [1, 2])
async def test_a_stream_ends_once(n):
    async with pair() as (front, _, _):
        got = await ask(front, {**BODY, "stream": True, "n": n})
        assert got.is_done and got.raw.count(b"[DONE]") == 1


async def test_usage_tells_what_the_prefill_server_reused_and_only_to_who_asks():
    async with pair() as (front, _, _):
        got = await ask(front, BODY)
        assert got.json["usage"]["prompt_tokens_details"]["cached_tokens"] == REUSED
        assert got.json["choices"][0]["text"] == expected_text(BODY)
        got = await ask(front, {**BODY, "stream": True})
        assert "usage" not in got.raw.decode()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        got = await ask(front, {**BODY, **options})
        usage = json.loads(got.events[-2])["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == REUSED
        assert usage["completion_tokens"] == BODY["max_tokens"]


@pytest.mark.parametrize("stream", [False, True])
async def test_each_of_n_outputs_has_a_handle_of_its_own(stream):
    async with pair() as (front, (prefill,), (decode,)):
        prompts = ["first", "the second prompt"]
        options = {"include_usage": True}
        body = {"prompt": prompts, "max_tokens": 4, "n": 2, "seed": 5, "stream": stream}
        got = await ask(front, {**body, "stream_options": options} if stream else body)
        probes = len(prefill.handles) - 4
        assert probes >= 1 and set(prefill.handles.values()) == {"read"}
        assert sorted(sent["seed"] for _, sent, _ in decode.requests) == [5, 5, 6, 6]
        for index in range(4):
            changes = {"prompt": prompts[index // 2], "seed": 5 + index % 2}
            text = expected_text(body, **changes)
            found = got.text(index) if stream else got.json["choices"][index]["text"]
            assert found == text
        usage = json.loads(got.events[-2])["usage"] if stream else got.json["usage"]
        assert usage["prompt_tokens"] == sum(map(len, prompts))
        assert usage["completion_tokens"] == 16
        assert not stream or got.is_done


async def test_a_client_steers_nothing():
    async with pair() as (front, (prefill,), (decode,)):
        steering = {
            "kv_transfer_params": {"do_remote_prefill": True, "remote_host": "10.0.0.1"},
            "ec_transfer_params": {"x": 1},
            "request_id": "anothers",
            "remote_host": "10.0.0.1",
            "vllm_xargs": {"kv_transfer_params": "x", "mine": 1},
        }
        got = await ask(front, {**BODY, **steering}, headers={"x-request-id": "anothers"})
        assert got.status == 200 and got.headers["x-request-id"] == "anothers"
        for _, sent, headers in prefill.requests + decode.requests:
            params = sent["kv_transfer_params"]
            assert params.get("remote_host") in (None, "127.0.0.1")
            assert not {"ec_transfer_params", "request_id", "remote_host"} & set(sent)
            assert "anothers" not in headers["x-request-id"]
        assert decode.requests[0][1]["vllm_xargs"] == {"mine": 1}
        page = (await get(front, "/metrics")).raw.decode()
        assert 'steering_fields_dropped_total{field="request_id"' in page


@pytest.mark.parametrize("field", ["echo", "use_beam_search", "prompt_logprobs"])
async def test_what_needs_one_server_is_served_by_one_and_says_so(field):
    async with pair() as (front, (prefill,), (decode,)):
        got = await ask(front, {**BODY, field: 1, "n": 2})
        assert got.headers["x-baton-mode"] == "colocated"
        assert got.headers["x-baton-reason"] == field
        assert not prefill.requests and "kv_transfer_params" not in decode.requests[0][1]


async def test_errors_of_the_servers_are_not_wrapped_twice():
    async with pair() as (front, (prefill,), (decode,)):
        prefill.fault = "400"
        got = await ask(front, BODY)
        assert got.status == 400 and got.json["error"]["message"] == "as ordered"
        assert not decode.requests
        got = await ask(front, {**BODY, "model": "nobody"})
        assert got.status == 404 and "nobody" in got.json["error"]["message"]
        got = await ask(front, {**BODY, "n": 100})
        assert got.status == 400 and got.json["error"]["message"] == "n is 100; use 1 to 16"


async def test_health_models_version_and_metrics():
    async with pair() as (front, _, _):
        assert (await get(front, "/health")).json == {"status": "ready", "mode": "disaggregated"}
        assert (await get(front, "/v1/models")).json["data"][0]["max_model_len"] == 2048
        version = (await get(front, "/version")).json
        assert version["connector"] == "nixl"
        assert [server["epoch"] for server in version["servers"]] == [1, 1]
        await ask(front, BODY)
        page = (await get(front, "/metrics")).raw.decode()
        assert 'baton_vllm_outputs_total{mode="disaggregated",reason="queue"} 1.0' in page
        assert 'baton_vllm_phase_seconds_count{phase="prefill"}' in page
        assert 'baton_vllm_server_kv_usage{role="prefill",server="prefill-0"} 0.25' in page


async def test_tenants_never_share_a_prefix():
    async with pair("gateway.tenants=api_key") as (front, (prefill,), (decode,)):
        for key in ("one", "two"):
            await ask(
                front, {**BODY, "cache_salt": "s"}, headers={"authorization": f"Bearer {key}"}
            )
        salts = [sent["cache_salt"] for _, sent, _ in prefill.requests]
        assert len(set(salts)) == 2 and all(salt.endswith("s") for salt in salts)
        assert salts == [sent["cache_salt"] for _, sent, _ in decode.requests]


async def test_who_waits_for_servers_hears_of_all_of_them(monkeypatch, capsys):
    monkeypatch.setattr(serve, "_FIRST_WORD_S", 0.1)
    config = load_config(
        None,
        [
            "cluster.engine=vllm",
            "gateway.port=0",
            'vllm.prefill_urls=["http://127.0.0.1:1"]',
            'vllm.decode_urls=["http://127.0.0.1:2"]',
        ],
    )
    both = r"prefill-0 at http://127.0.0.1:1: it refuses .*decode-0 at http://127.0.0.1:2: it"
    async with serve.open_vllm_front(config) as front:
        with pytest.raises(BatonError, match="not ready after 0 s: " + both):
            await serve.wait_complete(front, 0.4)
    said = [one for one in capsys.readouterr().err.splitlines() if "gateway: waits" in one]
    assert len(said) == 1 and re.search(both, said[0])
