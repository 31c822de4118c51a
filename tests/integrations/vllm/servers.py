"""Two servers of several ranks each, without vLLM: real bytes, virtual time, faults by name."""

from collections import deque

import numpy as np
import xxhash
from msgspec.structs import replace

from baton.core.effects import CancelIo, DigestChunk, MoveChunk
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved, IoQuiesced
from baton.core.ids import Direction
from baton.core.layout import KVLayout
from baton.core.request import Token
from baton.integrations.vllm.info import ConnectorInfo, Member
from baton.integrations.vllm.legs import Legs
from baton.integrations.vllm.memory import offsets, put_runs
from baton.integrations.vllm.messages import CacheMap, Pair, Paired, Process
from baton.integrations.vllm.orders import Hold, Load, Stream
from baton.integrations.vllm.outputs import Answer, Join, Meet, Part, Tell
from baton.integrations.vllm.settings import Settings
from baton.integrations.vllm.ticket import TicketIssuer, read_ticket
from baton.runtime.dataplane import NixlRegion
from tests.integrations.vllm.members import FACTS, IDENTITY, SIGNER, VERIFIER, fence

TOKENS = tuple(range(70))
"""Three blocks, the last of them partly filled."""
NUM_LAYERS, NUM_BLOCKS, HEAD_DIM, SLOTS = 3, 16, 4, 32


def head_of(rank, tp_size, heads):
    """First head of a rank, from first principles: heads in order, replicas side by side."""
    return rank * heads // tp_size


def rank_info(worker_id, role, tp_size, rank, heads, endpoints=None):
    layout = KVLayout(
        num_layers=NUM_LAYERS,
        num_kv_heads=max(1, heads // tp_size),
        head_dim=HEAD_DIM,
        block_size=SLOTS,
        axis_order="test",
        tp_size=tp_size,
    )
    endpoints = endpoints or tuple(f"tcp://127.0.0.1:{r + 1}" for r in range(tp_size))
    return ConnectorInfo(
        member=Member(worker_id=worker_id, epoch=7, endpoints=endpoints),
        role=role,
        num_blocks=NUM_BLOCKS,
        max_model_len=256,
        layout=layout,
        identity=IDENTITY,
        facts=replace(FACTS, tp_size=tp_size, num_kv_heads=heads),
        rank=rank,
    )


def cache_of(seed, heads):
    """The whole model's: [layers, blocks, heads, slots * 2 * head_dim]."""
    sizes = (NUM_LAYERS, NUM_BLOCKS, heads, SLOTS * 2 * HEAD_DIM)
    return np.random.default_rng(seed).random(sizes).astype(np.float32)


class RankSide:
    """One rank: its legs, its memory, what vLLM heard of it."""

    def __init__(self, own, seed, whole):
        self.info = own
        self.key = (own.member.worker_id, own.member.epoch, own.rank)
        self.tp_size = own.facts.tp_size
        settings = Settings(
            key_file="k", worker_id="w", port=1, chunk_nbytes=SLOTS * 2 * HEAD_DIM * 4
        )
        self.legs = Legs(own, settings, VERIFIER, seed << 40)
        first = head_of(own.rank, self.tp_size, own.facts.num_kv_heads)
        self.heads = slice(first, first + own.layout.num_kv_heads)
        self.cache = np.ascontiguousarray(whole[:, :, self.heads])
        self.memory = self.cache.reshape(-1).view(np.uint8)
        nbytes = own.layout.layer_block_nbytes
        self.map = CacheMap(
            layer_stride_nbytes=NUM_BLOCKS * nbytes,
            block_stride_nbytes=nbytes,
            block_nbytes=nbytes,
            num_layers=NUM_LAYERS,
            num_blocks=NUM_BLOCKS,
        )
        region = NixlRegion(
            worker_id=f"{self.key[0]}/{own.rank}",
            epoch=7,
            host="h",
            agent="a",
            address=0,
            nbytes=self.memory.nbytes,
            metadata=b"",
            token=b"",
        )
        process = Process(place="", pid=0, started=0)
        self.hello = Pair(info=own, region=region, cache=self.map, process=process)
        self.ended = []
        self.parked = []
        """Moves that do not end until they are let go."""

    def sum_of(self, leg, chunk, blocks, *, is_source):
        layers = range(chunk.layer_start, chunk.layer_start + chunk.num_layers)
        runs = [
            (offset + (piece.source_offset if is_source else piece.destination_offset), piece[2])
            for offset in offsets(self.map, layers, blocks)
            for piece in self.legs.pieces(leg, is_source=is_source)
        ]
        return xxhash.xxh3_64_intdigest(
            b"".join(self.memory[start : start + nbytes].tobytes() for start, nbytes in runs)
        )


class Servers:
    """A source `p` and a destination `d` of any tensor-parallel sizes, and a wire."""

    def __init__(self, source_tp, destination_tp, heads):
        self.source, self.target = cache_of(1, heads), cache_of(2, heads)
        self.p = [
            RankSide(rank_info("p0", "kv_producer", source_tp, r, heads), 1 + r, self.source)
            for r in range(source_tp)
        ]
        self.d = [
            RankSide(rank_info("d0", "kv_consumer", destination_tp, r, heads), 99 + r, self.target)
            for r in range(destination_tp)
        ]
        self.sides = {side.key: side for side in (*self.p, *self.d)}
        self.now_us = 1_000_000
        self.wire = deque()
        self.is_parked = lambda side, order: False
        """Moves that wait until `let_go`."""
        self.flip = lambda side, order: False
        """Moves that change one bit on their way."""
        self.num_moves = 0

    # -- orders ----------------------------------------------------------------------------

    def ticket(self, direction=Direction.PULL):
        source, destination = self.p[0].info, self.d[0].info
        text = TicketIssuer(SIGNER).mint(
            fence(source, destination),
            source,
            destination,
            direction=direction,
            route_epoch=1,
            now_us=self.now_us,
            deadline_ms=60_000,
        )
        return read_ticket(text, VERIFIER)

    def hold(self, ticket, blocks=(3, 5, 4)):
        order = Hold(
            vllm_id="p-req",
            ticket=ticket,
            token_ids=TOKENS,
            block_ids=blocks,
            first_token=Token(index=0, token_id=9),
            num_cached_tokens=0,
        )
        self.order(self.p, order)

    def load(self, ticket, blocks=(8, 2, 11)):
        order = Load(
            vllm_id="d-req",
            ticket=ticket,
            token_ids=TOKENS,
            token_start=0,
            visible_blocks=(),
            block_ids=blocks,
        )
        self.order(self.d, order)

    def stream(self, ticket, start, end, blocks):
        order = Stream(
            vllm_id="p-req",
            ticket=ticket,
            token_ids=TOKENS,
            block_ids=blocks,
            start=start,
            end=end,
        )
        self.order(self.p, order)

    def order(self, sides, *orders):
        for side in sides:
            if side.key in self.sides:
                self.perform(side, side.legs.on_orders(orders, self.now_us))
        self.settle()

    def layers_written(self):
        for layer in range(NUM_LAYERS):
            for side in self.p:
                self.perform(side, side.legs.on_layer(layer, self.now_us))
            self.settle()
        for side in self.p:
            self.perform(side, side.legs.on_step_end(self.now_us))
        self.settle()

    # -- time ------------------------------------------------------------------------------

    def run(self, seconds, every_ms=100):
        end_us = self.now_us + round(1e6 * seconds)
        while self.now_us < end_us:
            self.now_us += 1000 * every_ms
            for side in list(self.sides.values()):
                self.perform(side, side.legs.on_tick(self.now_us))
            self.settle()

    def kill(self, side):
        del self.sides[side.key]
        for other in list(self.sides.values()):
            self.perform(other, other.legs.on_peer_lost(side.key, self.now_us))
        self.settle()

    def settle(self):
        while self.wire:
            sender, to, message = self.wire.popleft()
            side = self.sides.get(to)
            if side is not None:
                tp_size = (self.p if sender[0] == "p0" else self.d)[0].tp_size
                self.perform(side, side.legs.on_message(sender, tp_size, message, self.now_us))

    def let_go(self):
        self.is_parked = lambda side, order: False
        for side in list(self.sides.values()):
            parked, side.parked = side.parked, []
            for leg, effect in parked:
                self.move(side, leg, effect)
        self.settle()

    # -- effects ---------------------------------------------------------------------------

    def perform(self, side, effects):
        for leg, effect in effects:
            self.perform_one(side, leg, effect)

    def perform_one(self, side, leg, effect):
        if isinstance(effect, Tell):
            self.wire.append((side.key, (effect.worker_id, effect.epoch, leg.rank), effect.message))
        elif isinstance(effect, Meet):
            key = (effect.member.worker_id, effect.member.epoch, leg.rank)
            if key in self.sides:
                self.wire.append((side.key, key, side.hello))
            else:
                why = "source_unreachable"
                self.perform(side, side.legs.on_not_joined(leg, key[:2], why, self.now_us))
        elif isinstance(effect, Join):
            hello = side.hello
            own = Paired(
                info=hello.info, region=hello.region, cache=hello.cache, process=hello.process
            )
            own = own if isinstance(effect.hello, Pair) else None
            self.perform(side, side.legs.on_joined(leg, effect.hello, own, self.now_us))
        elif isinstance(effect, Answer):
            side.ended.append(effect.ended)
        elif isinstance(effect, MoveChunk):
            self.move(side, leg, effect)
        elif isinstance(effect, DigestChunk):
            value = side.sum_of(leg, effect.chunk, effect.local_blocks, is_source=not effect.inward)
            done = ChunkDigested(
                reservation_id=effect.reservation_id,
                chunk_id=effect.chunk.chunk_id,
                checksum=value,
            )
            self.perform(side, side.legs.on_event(done, self.now_us))
        elif isinstance(effect, CancelIo):
            gone = effect.reservation_id
            side.parked = [one for one in side.parked if one[1].reservation_id != gone]
            quiet = IoQuiesced(reservation_id=effect.reservation_id)
            self.perform(side, side.legs.on_event(quiet, self.now_us))
        else:
            assert isinstance(effect, Part)

    def move(self, side, leg, order):
        if self.is_parked(side, order):
            side.parked.append((leg, order))
            return
        self.num_moves += 1
        chunk = order.chunk
        peer = self.sides[(order.peer_id, order.peer_epoch, leg.rank)]
        layers = range(chunk.layer_start, chunk.layer_start + chunk.num_layers)
        here, there = (side, peer) if order.write else (peer, side)
        summed = (leg, chunk, order.local_blocks)
        checksum = side.sum_of(*summed, is_source=True) if order.write else 0
        pieces = [
            (p.source_offset, p.destination_offset, p.nbytes)
            if order.write
            else (p.destination_offset, p.source_offset, p.nbytes)
            for p in side.legs.pieces(leg, is_source=order.write)
        ]
        moved = 0
        for local, remote, nbytes in put_runs(
            side.map, peer.map, layers, order.local_blocks, order.remote_blocks, pieces
        ):
            source, target = (local, remote) if order.write else (remote, local)
            there.memory[target : target + nbytes] = here.memory[source : source + nbytes]
            moved += nbytes
        if self.flip(side, order):
            there.memory[target] ^= 1
        if not order.write:  # a read is summed as it landed
            checksum = side.sum_of(*summed, is_source=False)
        fields = {
            "reservation_id": order.reservation_id,
            "chunk_id": chunk.chunk_id,
            "nbytes": moved,
            "checksum": checksum,
        }
        self.perform(side, side.legs.on_event(ChunkMoved(**fields), self.now_us))
        if order.write:
            came = ChunkArrived(source_id=side.key[0], source_epoch=side.key[1], **fields)
            self.perform(peer, peer.legs.on_event(came, self.now_us, from_rank=side.info.rank))

    # -- verdicts --------------------------------------------------------------------------

    def require_loaded(self, pairs=((3, 8), (5, 2), (4, 11))):
        """Every destination rank has the model's heads in those blocks, and all else untouched."""
        expected = self.target.copy()
        for source, destination in pairs:
            expected[:, destination] = self.source[:, source]
        for side in self.d:
            assert (side.cache == expected[:, :, side.heads]).all()
        for side in self.p:
            assert (side.cache == self.source[:, :, side.heads]).all()

    def require_nothing_held(self):
        for side in self.sides.values():
            status = side.legs.status()
            held = (status.held_blocks, status.loading_blocks, status.waiting_claims)
            assert held == (0, 0, 0) and not status.open_holds and not status.open_loads
            assert not status.open_tickets
            assert side.legs.is_idle
