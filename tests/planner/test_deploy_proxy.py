"""The proxy between servers that answer as vLLM's do: state goes on, loads balance, errors show."""

import json
from contextlib import asynccontextmanager

import pytest

aiohttp = pytest.importorskip("aiohttp", reason="the extra `bench` is not installed")
from aiohttp import web  # noqa: E402
from aiohttp.test_utils import TestClient, TestServer  # noqa: E402

from baton.planner.deploy.proxy import Proxy, Servers, prompt_body  # noqa: E402

STATE = {"do_remote_prefill": True, "remote_engine_id": "e1", "remote_block_ids": [[1, 2]]}


class Server:
    """Keeps what it is asked; answers JSON, or a stream of three events."""

    def __init__(self, *, answer=None, status=200):
        self.asked, self.headers = [], []
        self.answer, self.status = answer or {"choices": []}, status

    async def handle(self, request):
        body = await request.json()
        self.asked.append(body)
        self.headers.append(request.headers)
        if self.status != 200 or not body.get("stream"):
            return web.json_response(self.answer, status=self.status)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(3):
            await response.write(f"data: {number}\n\n".encode())
        return response

    async def models(self, request):
        return web.json_response({"data": ["m"]})


@asynccontextmanager
async def running(*servers):
    found = []
    for server in servers:
        app = web.Application()
        app.router.add_post("/v1/completions", server.handle)
        app.router.add_post("/v1/chat/completions", server.handle)
        app.router.add_get("/v1/models", server.models)
        found.append(TestServer(app))
        await found[-1].start_server()
    try:
        yield [str(one.make_url("")) for one in found]
    finally:
        for one in found:
            await one.close()


@asynccontextmanager
async def clients(prefill=(), decode=(), mixed=()):
    proxy = Proxy(list(prefill), list(decode), list(mixed))
    async with TestClient(TestServer(proxy.application())) as client:
        yield client


async def test_the_state_of_a_prompt_reaches_the_decode_server():
    first, second = Server(answer={"kv_transfer_params": STATE}), Server()
    body = {"prompt": "hello", "stream": True, "max_tokens": 50, "min_tokens": 4, "n": 1}
    async with running(first, second) as (a, b), clients([a], [b]) as client:
        headers = {"Authorization": "Bearer k", "X-Request-Id": "r-1"}
        answer = await client.post("/v1/completions", json=body, headers=headers)
        assert await answer.text() == "data: 0\n\ndata: 1\n\ndata: 2\n\n"
        assert answer.headers["Content-Type"].startswith("text/event-stream")
    asked = first.asked[0]
    assert (asked["max_tokens"], asked["stream"]) == (1, False)
    assert asked["kv_transfer_params"]["do_remote_decode"] is True
    assert "min_tokens" not in asked and "n" not in asked
    assert second.asked[0] == {**body, "kv_transfer_params": STATE}
    for server in (first, second):
        assert server.headers[0]["Authorization"] == "Bearer k"
        assert server.headers[0]["X-Request-Id"] == "r-1"


async def test_mixed_servers_are_asked_as_they_are():
    server = Server(answer={"choices": [1]})
    async with running(server) as (a,), clients(mixed=[a]) as client:
        body = {"messages": [], "max_completion_tokens": 9}
        answer = await client.post("/v1/chat/completions", json=body)
        assert await answer.json() == {"choices": [1]}
        assert (await (await client.get("/v1/models")).json()) == {"data": ["m"]}
        assert (await client.get("/health")).status == 200
    assert server.asked == [body]


async def test_a_refusal_of_either_server_is_the_answer():
    refusing = Server(answer={"error": {"message": "too long"}}, status=400)
    good = Server(answer={"kv_transfer_params": STATE})
    async with running(refusing, good) as (bad, fine):
        for prefill, decode in (([bad], [fine]), ([fine], [bad])):
            async with clients(prefill, decode) as client:
                answer = await client.post("/v1/completions", json={"prompt": "x"})
                assert answer.status == 400
                assert (await answer.json())["error"]["message"] == "too long"
    assert len(good.asked) == 1  # only as the prefill server of the second pair


async def test_a_server_that_is_gone_is_a_bad_gateway():
    async with running(Server()) as (gone,):
        pass
    async with clients(mixed=[gone]) as client:
        answer = await client.post("/v1/completions", json={"prompt": "x"})
        assert answer.status == 502
        assert "cannot be reached" in (await answer.json())["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("no", "not JSON"),
        ("[]", "not a JSON object"),
        (json.dumps({"kv_transfer_params": {}}), "not for clients"),
    ],
)
async def test_what_clients_may_not_send_is_refused(body, message):
    server = Server()
    async with running(server) as (a,), clients(mixed=[a]) as client:
        answer = await client.post("/v1/completions", data=body)
        assert answer.status == 400
        assert message in (await answer.json())["error"]["message"]
    assert server.asked == []


async def test_the_least_loaded_server_is_next_and_counts_come_back():
    servers = Servers(["http://a/", "http://b"])
    async with servers.least_loaded() as first, servers.least_loaded() as second:
        assert (first, second) == ("http://a", "http://b")
        async with servers.least_loaded() as third:
            assert third == "http://a"
    with pytest.raises(RuntimeError):
        async with servers.least_loaded():
            raise RuntimeError
    assert set(servers.open.values()) == {0}


def test_both_names_of_the_output_bound_are_cut():
    asked = prompt_body({"max_completion_tokens": 7, "stream_options": {}, "best_of": 2})
    assert asked["max_completion_tokens"] == asked["max_tokens"] == 1
    assert "stream_options" not in asked and "best_of" not in asked


@pytest.mark.parametrize("pools", [([], [], []), (["p"], [], []), (["p"], ["d"], ["m"])])
def test_pools_that_cannot_answer_are_refused(pools):
    with pytest.raises(SystemExit, match="--prefill and --decode"):
        Proxy(*pools)
