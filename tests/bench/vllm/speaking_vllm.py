"""Stands where a Python with vLLM is expected: a server that answers, hands over, and can lie.

Its tokens are a function of the prompt. With a file `lies` beside it, what it answers after a
handoff is not; with `silent`, a stream lacks its end.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from aiohttp import web

STARTED = time.time()
STEP_S = 0.01


def tokens_of(text):
    return text if isinstance(text, list) else list(text.encode())


async def page(request):
    pages = {
        "/metrics": f'vllm:kv_cache_usage_perc{{engine="0"}} 0.0\n'
        'vllm:cache_config_info{block_size="32",num_gpu_blocks="100"} 1.0\n'
        f"process_start_time_seconds {STARTED}\n",
        "/v1/models": json.dumps({"data": [{"id": "m", "root": "m", "max_model_len": 2048}]}),
        "/version": json.dumps({"version": "spoken"}),
    }
    return web.Response(text=pages.get(request.path, ""))


async def tokenize(request):
    return web.json_response({"tokens": tokens_of((await request.json())["prompt"])})


async def generate(request):
    body = await request.json()
    params = body.get("kv_transfer_params") or {}
    if body.get("model", "m") != "m":
        return web.json_response({"error": {"message": "no such model"}}, status=404)
    prompt, count = tokens_of(body["prompt"]), body["max_tokens"]
    folder = Path(__file__).parent
    lies = (folder / "lies").exists() and params.get("do_remote_prefill")
    ids = [(sum(prompt) * 31 + place * 7 + bool(lies)) % 997 for place in range(count)]
    usage = {"prompt_tokens": len(prompt), "completion_tokens": count}
    if not body.get("stream"):
        await asyncio.sleep(STEP_S * count)
        handle = {
            "do_remote_prefill": True,
            "remote_block_ids": [[1]],
            "remote_engine_id": "e",
            "remote_host": "127.0.0.1",
            "remote_port": 1,
        }
        choice = {"index": 0, "text": "x", "token_ids": ids, "finish_reason": "length"}
        answer = {"choices": [choice], "usage": usage}
        if params.get("do_remote_decode"):
            answer["kv_transfer_params"] = handle
        return web.json_response(answer)
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for place, token in enumerate(ids):
        await asyncio.sleep(STEP_S)
        finish = "length" if place == count - 1 else None
        choice = {"index": 0, "text": "x", "token_ids": [token], "finish_reason": finish}
        await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
    last = json.dumps({"choices": [], "usage": usage}, separators=(",", ":"))
    await response.write(f"data: {last}\n\ndata: [DONE]\n\n".encode())
    return response


if "-c" in sys.argv:
    sys.exit(0)
app = web.Application()
app.add_routes([web.get(path, page) for path in ("/health", "/metrics", "/v1/models", "/version")])
app.add_routes([web.post("/tokenize", tokenize), web.post("/v1/completions", generate)])
(Path(__file__).parent / f"life-{os.getpid()}").touch()
port = int(sys.argv[sys.argv.index("--port") + 1])
web.run_app(app, host="127.0.0.1", port=port, print=None)
