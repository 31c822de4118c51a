"""Servers that compute nothing, with the connector's own transaction and control link behind them.

Destination and source are the real nodes of `tests.integrations.vllm.pair`, which move real bytes
at once; how long the move takes is the double's to say, on the real clock.
"""

import asyncio
import itertools
import json
import threading
import time
from contextlib import asynccontextmanager

from msgspec.structs import replace
from tests.integrations.vllm.members import info
from tests.integrations.vllm.pair import SETTINGS, World
from tests.runtime.vllm.faulty_vllm import FaultyVllm, running
from tests.runtime.vllm.front import config_of

from baton.integrations.vllm.keys import load_member, mint_keys
from baton.integrations.vllm.legs_status import records_of
from baton.integrations.vllm.link import Link
from baton.integrations.vllm.messages import Envelope, HandoffQuestion, StatusQuestion
from baton.integrations.vllm.node import Node
from baton.integrations.vllm.process import this_host
from baton.integrations.vllm.ticket import read_ticket
from baton.runtime.vllm.serve import open_vllm_front, wait_complete


def clock_us():
    return time.monotonic_ns() // 1000


class Control(threading.Thread):
    """The control port of one connector. `fault` is what it does to questions of handoffs."""

    def __init__(self, port, keys):
        super().__init__(daemon=True)
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.node = None
        self.fault = ""
        self.asked = []
        self._keys = keys
        self._is_over = threading.Event()

    def run(self):
        link = Link(self.endpoint, self._keys)
        while not self._is_over.is_set():
            for envelope, routing_id in link.receive(dict(link.poller.poll(20))):
                answer = self._answer(envelope.message)
                if answer is not None:
                    sent = Envelope(sender_id="d", sender_epoch=7, sender_rank=0, message=answer)
                    link.reply(routing_id, sent)
        link.close()

    def _answer(self, question):
        if isinstance(question, StatusQuestion):
            return self.node.status()
        if not isinstance(question, HandoffQuestion):
            return None
        self.asked.append(question.transfer_ids)
        said = records_of([self.node], question, this_host(), clock_us())
        if self.fault == "silent":
            return None
        if self.fault == "other fence":
            strange = [replace(r, fence=replace(r.fence, source_epoch=6)) for r in said.records]
            return replace(said, records=tuple(strange))
        return said

    def close(self):
        self._is_over.set()
        self.join()


class TicketedVllm(FaultyVllm):
    """A prefill or decode server whose handles are tickets."""

    world = None
    verifier = None
    moves_s = 0.02

    def _prefill(self, body, fault):
        return {**super()._prefill(body, fault), "kv_transfer_params": {"do_remote_prefill": True}}

    async def _serve(self, request, body, leg, params, fault):
        if leg == "decode" and params.get("do_remote_prefill"):
            await self._load(read_ticket(params["baton_ticket"], self.verifier))
            params = {}
        return await super()._serve(request, body, leg, params, fault)

    async def _load(self, ticket):
        world = self.world
        world.now_us, world.is_parked = clock_us(), True
        world.hold(ticket)
        world.load(ticket)
        await asyncio.sleep(self.moves_s)
        world.now_us = clock_us()
        world.let_go()


@asynccontextmanager
async def ticketed_pair(folder, free_ports, *overrides, step_s=0.0, trace_dir=None):
    """The front, its prefill and decode server, and the decode server's control port."""
    mint_keys(folder)
    keys = load_member(str(folder / "member.json"))
    controls = [Control(port, keys) for port in free_ports]
    infos = [info("p0", role="kv_producer"), info("d0", role="kv_consumer")]
    infos = [
        replace(one, member=replace(one.member, endpoints=(control.endpoint,)))
        for one, control in zip(infos, controls, strict=True)
    ]
    world = World(*infos)
    for side, control in zip((world.p, world.d), controls, strict=True):
        first = 1 + (len(side.key[0] + control.endpoint) << 40)
        side.node = Node(side.info, SETTINGS, keys.verifier(), itertools.count(first))
        control.node = side.node
        control.start()
    servers = [TicketedVllm(name, step_s) for name in ("p0", "d0")]
    for server in servers:
        server.world, server.verifier = world, keys.verifier()
    async with running(*servers):
        named = [
            json.dumps([f"{server.url},control={control.endpoint}"])
            for server, control in zip(servers, controls, strict=True)
        ]
        config = config_of(
            [],
            [],
            "vllm.connector=baton",
            "vllm.direction=pull",
            f"vllm.key_folder={folder}",
            f"vllm.prefill_urls={named[0]}",
            f"vllm.decode_urls={named[1]}",
            *overrides,
        )
        try:
            async with open_vllm_front(config, trace_dir=trace_dir) as front:
                await wait_complete(front, 10.0)
                while front.backend.servers.unproven():
                    await asyncio.sleep(0.01)
                yield front, servers, controls[1]
        finally:
            for control in controls:
                control.close()
