"""A gateway in front of faulty servers, and a client that shows everything it got."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
from tests.runtime.vllm.faulty_vllm import FaultyVllm, running

from baton.config import load_config
from baton.runtime.vllm.serve import open_vllm_front, wait_complete

BODY = {"prompt": "a prompt of a few words, long enough", "max_tokens": 6}


def config_of(prefills, decodes, *overrides):
    def listed(servers):
        return json.dumps([server.url for server in servers])

    return load_config(
        None,
        [
            "cluster.engine=vllm",
            "gateway.port=0",
            f"vllm.prefill_urls={listed(prefills)}",
            f"vllm.decode_urls={listed(decodes)}",
            "vllm.scrape_ms=20",
            "router.attempt_timeout_ms=1000",
            "router.decode_stall_ms=1000",
            *overrides,
        ],
    )


@asynccontextmanager
async def pair(*overrides, prefills=1, decodes=1, step_s=0.0):
    """The front, its prefill and its decode servers, all ready."""
    sources = [FaultyVllm(f"p{i}", step_s) for i in range(prefills)]
    sinks = [FaultyVllm(f"d{i}", step_s) for i in range(decodes)]
    async with running(*sources, *sinks):
        config = config_of(sources, sinks, *overrides)
        async with open_vllm_front(config) as front:
            await wait_complete(front, 10.0)
            while front.backend.servers.unproven():
                await asyncio.sleep(0.01)
            yield front, sources, sinks


class Got:
    """A whole response."""

    def __init__(self, status, headers, raw):
        self.status = status
        self.headers = headers
        self.raw = raw

    @property
    def json(self):
        return json.loads(self.raw)

    @property
    def events(self):
        return [
            line.removeprefix("data: ") for line in self.raw.decode().split("\n\n") if line.strip()
        ]

    @property
    def is_done(self):
        return self.events[-1] == "[DONE]"

    def text(self, index=0):
        found = []
        for event in self.events:
            if event != "[DONE]":
                choices = json.loads(event).get("choices", [])
                found += [one["text"] for one in choices if one["index"] == index]
        return "".join(found)


async def ask(front, body, path="/v1/completions", headers=None):
    """One request to its end."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(front.url + path, json=body, headers=headers) as response,
    ):
        return Got(response.status, response.headers, await response.read())


async def get(front, path):
    async with aiohttp.ClientSession() as session, session.get(front.url + path) as response:
        return Got(response.status, response.headers, await response.read())


async def until(condition, timeout_s=5.0):
    """Wait for something that must come true."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)
