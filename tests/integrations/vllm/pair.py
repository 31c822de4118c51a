"""Two nodes and everything between them: real bytes, virtual time, faults by name."""

import itertools
from collections import deque

import numpy as np
import xxhash

from baton.core.effects import CancelIo, DigestChunk, MoveChunk
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved, IoQuiesced
from baton.core.ids import Direction
from baton.core.request import Token
from baton.integrations.vllm.memory import offsets, put_runs
from baton.integrations.vllm.messages import CacheMap, Pair, Paired, Process
from baton.integrations.vllm.node import Node
from baton.integrations.vllm.orders import Hold, HoldEnded, Load, LoadEnded, Stream
from baton.integrations.vllm.outputs import Answer, Join, Meet, Part, Tell
from baton.integrations.vllm.settings import Settings
from baton.integrations.vllm.ticket import TicketIssuer, read_ticket
from baton.runtime.dataplane import NixlRegion
from tests.integrations.vllm.members import LAYOUT, SIGNER, VERIFIER, fence, info

SETTINGS = Settings(key_file="k", worker_id="w", port=1, chunk_nbytes=LAYOUT.layer_block_nbytes)
CACHE = CacheMap(
    layer_stride_nbytes=16 * LAYOUT.layer_block_nbytes,
    block_stride_nbytes=LAYOUT.layer_block_nbytes,
    block_nbytes=LAYOUT.layer_block_nbytes,
    num_layers=LAYOUT.num_layers,
    num_blocks=16,
)
WHOLE = ((0, 0, CACHE.block_nbytes),)
NBYTES = CACHE.num_layers * CACHE.layer_stride_nbytes
TOKENS = tuple(range(70))
"""Three blocks, the last of them partly filled."""


class Side:
    """One rank: its node, its memory, what vLLM heard of it."""

    def __init__(self, own, seed, facts=None):
        self.info = own
        self.key = (own.member.worker_id, own.member.epoch)
        self.node = Node(own, SETTINGS, VERIFIER, itertools.count(1 + (seed << 40)))
        self.memory = np.random.default_rng(seed).integers(0, 255, NBYTES, dtype=np.uint8)
        region = NixlRegion(
            worker_id=self.key[0],
            epoch=self.key[1],
            host="h",
            agent="a",
            address=0,
            nbytes=NBYTES,
            metadata=b"",
            token=b"",
        )
        process = Process(place="", pid=0, started=0)
        self.hello = Pair(info=own, region=region, cache=CACHE, process=process)
        self.ended = []
        self.parked = []
        """Moves that do not end until they are let go."""

    def runs(self, chunk, blocks):
        layers = range(chunk.layer_start, chunk.layer_start + chunk.num_layers)
        return [slice(o, o + CACHE.block_nbytes) for o in offsets(CACHE, layers, blocks)]

    def sum_of(self, chunk, blocks):
        return xxhash.xxh3_64_intdigest(
            b"".join(self.memory[run].tobytes() for run in self.runs(chunk, blocks))
        )

    def block(self, block):
        return [
            self.memory[offset : offset + CACHE.block_nbytes].tobytes()
            for offset in offsets(CACHE, range(CACHE.num_layers), [block])
        ]


class World:
    """A source `p`, a destination `d`, and a wire between them."""

    def __init__(self, source=None, destination=None):
        self.p = Side(source or info("p0", role="kv_producer"), 1)
        self.d = Side(destination or info("d0", role="kv_consumer"), 2)
        self.sides = {side.key: side for side in (self.p, self.d)}
        self.now_us = 1_000_000
        self.wire = deque()
        self.lost = lambda sender, message: False
        """Says which messages the wire loses."""
        self.is_parked = False
        """Moves wait until `let_go`."""
        self.flip = False
        """The next move changes one bit on its way."""

    # -- orders ----------------------------------------------------------------------------

    def ticket(self, direction=Direction.PULL, generation=1, deadline_ms=60_000, **bounds):
        text = TicketIssuer(SIGNER).mint(
            fence(self.p.info, self.d.info, generation=generation),
            self.p.info,
            self.d.info,
            direction=direction,
            route_epoch=1,
            now_us=self.now_us,
            deadline_ms=deadline_ms,
            **bounds,
        )
        return read_ticket(text, VERIFIER)

    def hold(self, ticket, blocks=(3, 5, 4), vllm_id="p-req"):
        order = Hold(
            vllm_id=vllm_id,
            ticket=ticket,
            token_ids=TOKENS,
            block_ids=blocks,
            first_token=Token(index=0, token_id=9),
            num_cached_tokens=0,
        )
        self.order(self.p, order)

    def load(self, ticket, blocks=(8, 2, 11), start=0, visible=(), vllm_id="d-req", refusal=""):
        order = Load(
            vllm_id=vllm_id,
            ticket=ticket,
            refusal=refusal,
            token_ids=TOKENS,
            token_start=start,
            visible_blocks=visible,
            block_ids=blocks,
        )
        self.order(self.d, order)

    def stream(self, ticket, start, end, blocks, vllm_id="p-req"):
        order = Stream(
            vllm_id=vllm_id,
            ticket=ticket,
            token_ids=TOKENS,
            block_ids=blocks,
            start=start,
            end=end,
        )
        self.order(self.p, order)

    def order(self, side, *orders):
        self.perform(side, side.node.on_orders(orders, self.now_us))
        self.settle()

    def layer(self, layer):
        self.perform(self.p, self.p.node.on_layer(layer, self.now_us))
        self.settle()

    def step_end(self):
        self.perform(self.p, self.p.node.on_step_end(self.now_us))
        self.settle()

    # -- time ------------------------------------------------------------------------------

    def run(self, seconds, every_ms=100):
        end_us = self.now_us + round(1e6 * seconds)
        while self.now_us < end_us:
            self.now_us += 1000 * every_ms
            for side in self.sides.values():
                self.perform(side, side.node.on_tick(self.now_us))
            self.settle()

    def kill(self, side):
        del self.sides[side.key]
        for other in self.sides.values():
            self.perform(other, other.node.on_peer_lost(side.key, self.now_us))
        self.settle()

    def settle(self):
        while self.wire:
            sender, to, message = self.wire.popleft()
            side = self.sides.get(to)
            if side is not None and not self.lost(sender, message):
                self.perform(side, side.node.on_message(sender, message, self.now_us))

    def let_go(self):
        self.is_parked = False
        for side in self.sides.values():
            parked, side.parked = side.parked, []
            for effect in parked:
                self.perform_one(side, effect)
        self.settle()

    # -- effects ---------------------------------------------------------------------------

    def perform(self, side, effects):
        for effect in effects:
            self.perform_one(side, effect)

    def perform_one(self, side, effect):
        if isinstance(effect, Tell):
            self.wire.append((side.key, (effect.worker_id, effect.epoch), effect.message))
        elif isinstance(effect, Meet):
            key = (effect.member.worker_id, effect.member.epoch)
            there = [other for other in self.sides if other[0] == key[0]]
            if there:  # an address leads to whoever lives there now
                self.wire.append((side.key, there[0], side.hello))
            else:
                self.event(side, lambda n: n.on_not_joined(key, "source_unreachable", self.now_us))
        elif isinstance(effect, Join):
            hello = side.hello
            own = Paired(
                info=hello.info, region=hello.region, cache=hello.cache, process=hello.process
            )
            own = own if isinstance(effect.hello, Pair) else None
            self.event(side, lambda n: n.on_joined(effect.hello, own, self.now_us))
        elif isinstance(effect, Answer):
            side.ended.append(effect.ended)
        elif isinstance(effect, MoveChunk):
            self.move(side, effect)
        elif isinstance(effect, DigestChunk):
            value = side.sum_of(effect.chunk, effect.local_blocks)
            done = ChunkDigested(
                reservation_id=effect.reservation_id,
                chunk_id=effect.chunk.chunk_id,
                checksum=value,
            )
            self.event(side, lambda n: n.on_event(done, self.now_us))
        elif isinstance(effect, CancelIo):
            self.cancel(side, effect)
        else:
            assert isinstance(effect, Part)

    def event(self, side, call):
        self.perform(side, call(side.node))

    def move(self, side, order):
        if self.is_parked:
            side.parked.append(order)
            return
        chunk, peer = order.chunk, self.sides[(order.peer_id, order.peer_epoch)]
        layers = range(chunk.layer_start, chunk.layer_start + chunk.num_layers)
        here, there = (side, peer) if order.write else (peer, side)
        before = side.sum_of(chunk, order.local_blocks)
        for local, remote, nbytes in put_runs(
            CACHE, CACHE, layers, order.local_blocks, order.remote_blocks, WHOLE
        ):
            source, target = (local, remote) if order.write else (remote, local)
            there.memory[target : target + nbytes] = here.memory[source : source + nbytes]
        if self.flip:
            self.flip = False
            there.memory[target] ^= 1
        value = before if order.write else side.sum_of(chunk, order.local_blocks)
        fields = {
            "reservation_id": order.reservation_id,
            "chunk_id": chunk.chunk_id,
            "nbytes": chunk.nbytes,
            "checksum": value,
        }
        self.event(side, lambda n: n.on_event(ChunkMoved(**fields), self.now_us))
        if order.write:
            came = ChunkArrived(source_id=side.key[0], source_epoch=side.key[1], **fields)
            self.event(peer, lambda n: n.on_event(came, self.now_us))

    def cancel(self, side, order):
        side.parked = [m for m in side.parked if m.reservation_id != order.reservation_id]
        quiet = IoQuiesced(reservation_id=order.reservation_id)
        self.event(side, lambda n: n.on_event(quiet, self.now_us))

    # -- verdicts --------------------------------------------------------------------------

    def require_loaded(self, pairs=((3, 8), (5, 2), (4, 11)), vllm_id="d-req"):
        assert self.d.ended == [LoadEnded(vllm_id=vllm_id)]
        for source, destination in pairs:
            assert self.p.block(source) == self.d.block(destination)

    def require_nothing_held(self):
        for side in self.sides.values():
            status = side.node.status()
            held = (status.held_blocks, status.loading_blocks, status.waiting_claims)
            assert held == (0, 0, 0) and not status.open_holds and not status.open_loads
            assert not status.open_tickets
        if self.p.key in self.sides:
            assert len({ended.vllm_id for ended in self.p.ended}) == len(self.p.ended)

    def failure(self):
        (ended,) = self.d.ended
        assert ended.failed_blocks and not ended.is_published
        return ended.reason


HELD = [HoldEnded(vllm_id="p-req")]
