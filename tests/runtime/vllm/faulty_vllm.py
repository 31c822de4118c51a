"""A server that speaks the protocol of vLLM and fails on command, which vLLM itself does not.

It computes nothing. The token at each place is a number that the prompt decides, so that a test can
tell a right answer from a wrong one, and it keeps account of every handle: given, read, given back.
"""

import asyncio
import json
import time
from contextlib import asynccontextmanager

from aiohttp import web

REUSED = 32


class FaultyVllm:
    """One server. `fault` is what it does to the next generation requests; "" nothing."""

    def __init__(self, name, step_s=0.0):
        self.name = name
        self.step_s = step_s
        self.fault = ""
        self.fault_leg = ""
        self.requests = []
        self.aborted = 0
        self.running = 0
        self.handles = {}
        self.started = time.time()
        self.peers = {}
        self.root = "model"
        self.release = "0.32.0"
        self.block_size = 32
        self.port = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def app(self):
        app = web.Application()
        app.add_routes(
            [
                web.get("/health", self.health),
                web.get("/metrics", self.metrics),
                web.get("/v1/models", self.models),
                web.get("/version", self.version),
                web.post("/tokenize", self.tokenize),
                web.post("/v1/completions", self.generate),
                web.post("/v1/chat/completions", self.generate),
            ]
        )
        return app

    async def health(self, request):
        return web.Response()

    async def metrics(self, request):
        return web.Response(
            text=f'vllm:num_requests_running{{engine="0"}} {self.running}\n'
            'vllm:num_requests_waiting{engine="0"} 0.0\n'
            'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
            f'vllm:cache_config_info{{block_size="{self.block_size}",num_gpu_blocks="100",'
            'cache_dtype="auto",enable_prefix_caching="True"} 1.0\n'
            f"process_start_time_seconds {self.started}\n"
        )

    async def models(self, request):
        card = {"id": "model", "root": self.root, "max_model_len": 2048}
        return web.json_response({"data": [card]})

    async def version(self, request):
        if not self.release:
            return web.Response(text="<html>a proxy's page</html>")
        return web.json_response({"version": self.release})

    async def tokenize(self, request):
        body = await request.json()
        return web.json_response({"tokens": tokens_of(body)})

    async def generate(self, request):
        body = await request.json()
        params = body.get("kv_transfer_params") or {}
        leg = "prefill" if params.get("do_remote_decode") else "decode"
        if body["model"] != "model":
            await self._give_back(params)
            return _error(404, f"The model `{body['model']}` does not exist.")
        probe = request.headers["x-request-id"].startswith("probe-")
        if not probe:
            headers = {name.lower(): value for name, value in request.headers.items()}
            self.requests.append((leg, body, headers))
        self.running += 1
        try:
            return await self._serve(request, body, leg, params, "" if probe else self._fault(leg))
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            self.running -= 1

    def _fault(self, leg):
        fault = self.fault if self.fault_leg in ("", leg) else ""
        if fault.endswith(" once"):
            self.fault = ""
        return fault.removesuffix(" once")

    async def _serve(self, request, body, leg, params, fault):
        if fault == "reset":
            request.transport.abort()
            return web.Response()
        if fault == "hang":
            await asyncio.sleep(60)
        if fault.isdigit():
            return _error(int(fault), "as ordered")
        if leg == "prefill":
            return web.json_response(self._prefill(body, fault))
        held = 0
        if params.get("do_remote_prefill"):
            source = self.peers[params["remote_engine_id"]]
            state = source.handles[params["remote_block_ids"][0][0]]
            assert state == "given", f"a handle that is {state} was read"
            source.handles[params["remote_block_ids"][0][0]] = "read"
            held = len(tokens_of(body))
            if fault == "load":
                return _error(500, "K/V load failure")
        if body.get("stream"):
            return await self._stream(request, body, held, fault)
        await asyncio.sleep(self.step_s * body["max_tokens"])
        text = "".join(text_at(body, place) for place in range(body["max_tokens"]))
        return web.json_response(
            {"id": "x", "choices": [_choice(body, text, "length")], "usage": _usage(body, held)}
        )

    def _prefill(self, body, fault):
        number = len(self.handles)
        self.handles[number] = "given"
        params = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [[number]],
            "remote_engine_id": self.name,
            "remote_host": "127.0.0.1",
            "remote_port": 1,
        }
        return {
            "choices": [_choice(body, "x", "length")],
            "usage": _usage(body, REUSED),
            "kv_transfer_params": None if fault == "no_handle" else params,
        }

    async def _give_back(self, params):
        source = self.peers[params["remote_engine_id"]]
        number = params["remote_block_ids"][0][0]
        if source.handles[number] == "given":
            source.handles[number] = "given back"

    async def _stream(self, request, body, held, fault):
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        if fault == "error_first":
            await response.write(b'data: {"error":{"message":"broken","code":500}}\n\n')
            await response.write(b"data: [DONE]\n\n")
            return response
        for place in range(body["max_tokens"]):
            await asyncio.sleep(self.step_s)
            event = {"id": "x", "choices": [_choice(body, text_at(body, place), None)]}
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            if place == 2 and fault == "cut":
                request.transport.abort()
                return response
            if place == 2 and fault == "stall":
                await asyncio.sleep(60)
            if place == 2 and fault == "error_late":
                await response.write(b'data: {"error":{"message":"broken","code":500}}\n\n')
                await response.write(b"data: [DONE]\n\n")
                return response
        if (body.get("stream_options") or {}).get("include_usage"):
            # As compact as vLLM writes it.
            event = {"id": "x", "choices": [], "usage": _usage(body, held)}
            text = json.dumps(event, separators=(",", ":")).encode()
            await response.write(b"data: " + text + b"\n\n")
        if fault != "no_done":
            await response.write(b"data: [DONE]\n\n")
        return response


def tokens_of(body):
    """One token per byte of the prompt, or the ids themselves."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return prompt
    text = prompt if prompt is not None else json.dumps(body["messages"])
    return list(text.encode())


def text_at(body, place):
    """The text of the token at a place."""
    return f" {(sum(tokens_of(body)) * 31 + (body.get('seed') or 0) + place * 7) % 997}"


def expected_text(body, **changes):
    body = {**body, **changes}
    return "".join(text_at(body, place) for place in range(body["max_tokens"]))


def _choice(body, text, finish):
    return {"index": 0, "text": text, "finish_reason": finish}


def _usage(body, cached):
    prompt, completion = len(tokens_of(body)), body["max_tokens"]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _error(status, message):
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


@asynccontextmanager
async def running(*servers):
    """The servers listen, and know each other by name."""
    try:
        for server in servers:
            server.peers = {one.name: one for one in servers}
            await start(server)
        yield
    finally:
        for server in servers:
            await server.runner.cleanup()


async def start(server):
    """Listen, on the same port as before if there was one."""
    server.runner = web.AppRunner(server.app(), handler_cancellation=True, shutdown_timeout=0.1)
    await server.runner.setup()
    site = web.TCPSite(server.runner, "127.0.0.1", server.port)
    await site.start()
    server.port = server.runner.addresses[0][1]
