"""K/V events: names, lost batches, other lives; and routes that follow them over 2P+2D."""

import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
import pytest
import zmq
import zmq.asyncio
from tests.runtime.vllm.faulty_vllm import FaultyVllm, running, tokens_of
from tests.runtime.vllm.front import ask, config_of, get, until

from baton.core.cache import Tier
from baton.nodes.rates import Ratio
from baton.runtime.vllm.event_reader import EventReader
from baton.runtime.vllm.events import (
    BlockRemoved,
    BlockStored,
    Cleared,
    SequenceCheck,
    read_batch,
)
from baton.runtime.vllm.metrics import VllmMetrics
from baton.runtime.vllm.prefixes import Prefixes
from baton.runtime.vllm.serve import open_vllm_front, wait_complete
from baton.runtime.vllm.servers import ServerTable

SIZE = 4
TOKENS = list(range(100, 100 + 5 * SIZE))


def stored(first=0, count=2, parent=None, **more):
    return BlockStored(
        block_hashes=[b"h%d" % i for i in range(first, first + count)],
        parent_block_hash=parent,
        token_ids=TOKENS[first * SIZE : (first + count) * SIZE],
        block_size=SIZE,
        **more,
    )


def plain(change):
    """As it comes off the wire: to_builtins would turn bytes into text."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(change))


def prefixes():
    made = Prefixes()
    made.begin("p", 1)
    return made


def test_stored_blocks_are_found_by_their_tokens_in_chains():
    made = prefixes()
    made.apply("p", stored())
    assert made.depths(TOKENS) == {"p": 2}
    made.apply("p", stored(2, 2, parent=b"h1"))
    assert made.depths(TOKENS) == {"p": 4}
    assert made.depths(TOKENS[: 2 * SIZE]) == {"p": 2}
    assert made.depths([1, *TOKENS]) == {}
    made.apply("p", BlockRemoved(block_hashes=[b"h3", b"unknown"]))
    assert made.depths(TOKENS) == {"p": 3}


def test_salts_and_adapters_do_not_meet():
    made = prefixes()
    made.apply("p", stored(extra_keys=[["salt"], None]))
    assert made.depths(TOKENS) == {}
    assert made.depths(TOKENS, "salt") == {"p": 2}
    made = prefixes()
    made.apply("p", stored(lora_name="a", extra_keys=[["a"], ["a"]]))
    assert made.depths(TOKENS) == {}


def test_what_cannot_be_named_is_not_claimed():
    made = prefixes()
    made.apply("p", stored(2, 2, parent=b"never told"))
    assert made.depths(TOKENS) == {} and made.num_unnamed == 2
    made.apply("p", stored(extra_keys=[None, [["image", 3]]]))
    assert made.depths(TOKENS) == {"p": 1}


def test_tiers_clears_and_lives():
    made = prefixes()
    made.apply("p", stored(medium="CPU"))
    assert made.index.holdings("p")[Tier.HOST] == 2
    made.apply("p", Cleared())
    assert made.depths(TOKENS) == {}
    made.apply("p", stored())
    made.begin("p", 2)
    assert made.depths(TOKENS) == {}
    made.apply("p", stored())
    assert made.depths(TOKENS) == {"p": 2}


def test_a_batch_with_an_unknown_event_keeps_the_others():
    known = plain(stored())
    payload = msgspec.msgpack.encode([1.5, [known, {"type": "BlockTeleported"}], 0])
    assert read_batch(payload) == ([stored()], 1)
    with pytest.raises(msgspec.DecodeError):
        read_batch(b"\x01")


def test_numbers_show_what_is_missing():
    check = SequenceCheck()
    assert [check.take(number) for number in (0, 1, 1, 0)] == ["next", "next", "old", "restart"]
    assert check.take(1) == "next"
    assert check.take(5) == "gap"
    check.skip_to(6)
    assert check.take(6) == "next"
    assert SequenceCheck().take(7) == "gap"


class Publisher:
    """Publishes as vLLM does, and can leave batches out; those are told when asked for."""

    def __init__(self, replays=True):
        context = zmq.asyncio.Context.instance()
        self._socket, self._router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        self.events = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.replay = f"tcp://127.0.0.1:{self._router.bind_to_random_port('tcp://127.0.0.1')}"
        self._replays = replays
        self._sent = []
        self._task = asyncio.create_task(self._serve())

    async def tell(self, *changes, lose=False):
        number, body = len(self._sent), [0.0, [plain(one) for one in changes], 0]
        self._sent.append(msgspec.msgpack.encode(body))
        if not lose:
            await self._socket.send_multipart([b"", number.to_bytes(8, "big"), self._sent[-1]])

    async def _serve(self):
        while True:
            client, _, first = await self._router.recv_multipart()
            for number in range(int.from_bytes(first, "big"), len(self._sent)):
                frames = [client, b"", b"", number.to_bytes(8, "big"), self._sent[number]]
                if self._replays:
                    await self._router.send_multipart(frames)
            end = (-1).to_bytes(8, "big", signed=True)
            await self._router.send_multipart([client, b"", b"", end, b""])

    async def close(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._socket.close(linger=0)
        self._router.close(linger=0)


@asynccontextmanager
async def reading(replays=True):
    from baton.core.ids import Role
    from baton.core.vllm_settings import ServerAddress

    publisher = Publisher(replays)
    table, made = ServerTable(), Prefixes()
    address = ServerAddress(
        role=Role.PREFILL, url="http://h", events=publisher.events, replay=publisher.replay
    )
    server = table.add(address)
    server.rise(1.0)
    made.begin(server.server_id, server.epoch)
    metrics = VllmMetrics(table, {})
    task = asyncio.create_task(EventReader(server, made, metrics).run())
    while not metrics.events:  # a subscription takes a moment, and only an event shows it
        await publisher.tell(Cleared())
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.1)
    metrics.events.clear()
    try:
        yield publisher, made, metrics
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await publisher.close()


async def test_a_lost_batch_is_replayed():
    async with reading() as (publisher, made, metrics):
        await publisher.tell(stored(0, 1))
        await publisher.tell(stored(1, 1, parent=b"h0"), lose=True)
        await publisher.tell(stored(2, 1, parent=b"h1"))
        await until(lambda: made.depths(TOKENS) == {"prefill-0": 3})
        assert metrics.events["prefill-0", "replayed"] == 1


async def test_what_cannot_be_replayed_is_forgotten():
    async with reading(replays=False) as (publisher, made, metrics):
        await publisher.tell(stored(0, 2))
        await until(lambda: made.depths(TOKENS) == {"prefill-0": 2})
        await publisher.tell(BlockRemoved(block_hashes=[b"h0"]), lose=True)
        await publisher.tell(stored(2, 1, parent=b"h1"))
        await until(lambda: metrics.events["prefill-0", "cleared"] == 1)
        assert made.depths(TOKENS) == {}


@pytest.mark.parametrize("policy", ["local_cache_aware", "shortest_queue"])
async def test_prompts_go_where_their_prefix_is(policy):
    publishers = [Publisher(), Publisher()]
    sources = [FaultyVllm(f"p{i}") for i in range(2)]
    sinks = [FaultyVllm(f"d{i}") for i in range(2)]
    async with running(*sources, *sinks):
        config = config_of(sources, sinks, f"router.policy={policy}")
        urls = [
            f"{source.url},events={publisher.events},replay={publisher.replay}"
            for source, publisher in zip(sources, publishers, strict=True)
        ]
        vllm = msgspec.structs.replace(config.vllm, prefill_urls=tuple(urls))
        async with open_vllm_front(msgspec.structs.replace(config, vllm=vllm)) as front:
            await wait_complete(front, 10.0)
            await until(lambda: not front.backend.servers.unproven())
            for server in front.backend.servers:
                server.prefill_us = Ratio(100.0, 1e12)  # what a laden machine measures is not asked
            texts = ["the first long prompt of some words", "another one, which shares nothing"]
            for text, publisher in zip(texts, publishers, strict=True):
                await publisher.tell(held(text))
            while front.backend.prefixes.index.num_claims < 2 * 8:
                for publisher in publishers:
                    await publisher.tell()  # the next number shows a batch that came too early
                await asyncio.sleep(0.02)
            chosen = [
                [
                    (await ask(front, {"prompt": text, "max_tokens": 2})).headers[
                        "x-baton-prefill-worker"
                    ]
                    for _ in range(3)
                ]
                for text in texts
            ]
            if policy == "local_cache_aware":
                assert chosen == [["prefill-0"] * 3, ["prefill-1"] * 3]
            else:
                assert {name for names in chosen for name in names} == {"prefill-0"}
            cache = json.loads((await get(front, "/cache")).raw)
            assert cache["servers"]["prefill-1"]["memory"] == 8
    for publisher in publishers:
        await publisher.close()


def held(text):
    tokens = tokens_of({"prompt": text})[: 8 * SIZE]
    return BlockStored(
        block_hashes=list(range(8)), parent_block_hash=None, token_ids=tokens, block_size=SIZE
    )


async def test_a_short_rest_is_computed_where_it_decodes():
    sources, sinks = [FaultyVllm("p0")], [FaultyVllm("d0")]
    async with running(*sources, *sinks):
        config = config_of(sources, sinks, "vllm.min_split_tokens=20")
        async with open_vllm_front(config) as front:
            await wait_complete(front, 10.0)
            got = await ask(front, {"prompt": "short", "max_tokens": 2})
            assert got.headers["x-baton-reason"] == "short"
            got = await ask(front, {"prompt": "x" * 40, "max_tokens": 2})
            assert got.headers["x-baton-mode"] == "disaggregated"
