"""An in-memory cluster around the production nodes, for tests.

The engine is arithmetic: a K/V row is a hash of its position, its token and the row before it as
read through the block table, and a token is a hash of every row. One wrong, stale or missing
block changes the text.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque

import numpy as np

from baton.config import RouterConfig, TransferConfig, WorkerConfig
from baton.core import effects, events
from baton.core.delivery import Delivery, Failed, Finished, Started, Tokens
from baton.core.ids import Role
from baton.core.layout import KVLayout, ModelIdentity, ModelInfo
from baton.core.messages import Envelope, Hello
from baton.core.request import Request, SamplingParams
from baton.core.snapshot import WorkerInfo
from baton.core.work import BatchResult, Sampled
from baton.nodes.context import ROUTER
from baton.nodes.router import Router
from baton.nodes.worker import Worker
from baton.protocol.signing import HmacKey

VOCAB = 997
LAYOUT = KVLayout(num_layers=3, num_kv_heads=1, head_dim=2, block_size=4)
MODEL = ModelInfo(
    name="arithmetic",
    max_model_len=512,
    vocab_size=VOCAB,
    eos_token_ids=(996,),
    identity=ModelIdentity(model="arithmetic", checkpoint_hash="c", tokenizer_hash="t"),
    layout=LAYOUT,
)


def mix(*values: int) -> int:
    data = b",".join(str(value).encode() for value in values)
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest(), "little")


class Host:
    """One worker: its node, its memory, and the work that is going on in it."""

    def __init__(self, cluster: Cluster, worker_id: str, ordinal: int, role: Role, epoch: int):
        self.cluster = cluster
        self.node = Worker(
            worker_id=worker_id,
            ordinal=ordinal,
            epoch=epoch,
            role=role,
            model=MODEL,
            num_blocks=cluster.num_blocks,
            worker=cluster.worker_config,
            transfer=cluster.transfer_config,
            heartbeat_ms=50,
            verifier=cluster.key,
        )
        self.worker_id, self.ordinal, self.role, self.epoch = worker_id, ordinal, role, epoch
        self.rows = np.zeros((LAYOUT.num_layers, cluster.num_blocks, LAYOUT.block_size), np.int64)
        self.rows[:] = -(ordinal + 1) * 1000 - epoch  # garbage that differs between workers
        self.cancelled: set[int] = set()

    def info(self) -> WorkerInfo:
        return WorkerInfo(
            worker_id=self.worker_id,
            epoch=self.epoch,
            role=self.role,
            pid=0,
            version="test",
            endpoint="",
            model=MODEL,
            num_blocks=self.cluster.num_blocks,
            max_num_seqs=self.cluster.worker_config.max_num_seqs,
            region=b"",
        )

    def run(self, batch) -> list:
        found = []
        for item in batch.items:
            for offset, token in enumerate(item.token_ids):
                position = item.start + offset
                for layer in range(LAYOUT.num_layers):
                    before = self.read(layer, item.block_table, position - 1) if position else 0
                    self.write(
                        layer, item.block_table, position, mix(layer, position, token, before)
                    )
        if batch.report_layers:
            found += [
                events.LayerReady(batch_id=batch.batch_id, layer=layer)
                for layer in range(LAYOUT.num_layers)
            ]
        sampled = []
        for item in batch.items:
            if item.sample:
                values = [
                    self.read(layer, item.block_table, position)
                    for layer in range(LAYOUT.num_layers)
                    for position in range(item.end)
                ]
                sampled.append(
                    Sampled(
                        request_id=item.request_id,
                        generation=item.generation,
                        token_id=mix(*values, item.sampling.seed) % VOCAB,
                    )
                )
        result = BatchResult(
            batch_id=batch.batch_id, sampled=tuple(sampled), duration_us=100 * batch.num_rows
        )
        return [*found, events.BatchDone(result=result)]

    def read(self, layer: int, table, position: int) -> int:
        return int(self.rows[layer, table[position // 4], position % 4])

    def write(self, layer: int, table, position: int, value: int) -> None:
        self.rows[layer, table[position // 4], position % 4] = value

    def checksum(self, chunk, blocks) -> int:
        if not self.cluster.transfer_config.checksum:
            return 0
        layers = slice(chunk.layer_start, chunk.layer_start + chunk.num_layers)
        data = np.ascontiguousarray(self.rows[layers][:, list(blocks)])
        return int.from_bytes(hashlib.blake2b(data.tobytes(), digest_size=7).digest(), "little")


class Cluster:
    """Delivers effects as events, one at a time, in an order drawn from `seed`."""

    def __init__(
        self,
        roles=("prefill", "decode"),
        *,
        seed: int = 0,
        num_blocks: int = 64,
        worker: WorkerConfig | None = None,
        transfer: TransferConfig | None = None,
        router: RouterConfig | None = None,
        shuffle: bool = True,
    ):
        self.random = random.Random(seed)
        self.shuffle = shuffle
        self.num_blocks = num_blocks
        self.worker_config = worker or WorkerConfig(block_size=4, max_batch_tokens=16)
        self.transfer_config = transfer or TransferConfig(chunk_nbytes=128, credit_nbytes=256)
        self.now_us = 0
        self.key = HmacKey("router/test", b"cluster" * 5)
        self.router = Router(router or RouterConfig(), self.transfer_config, signer=self.key)
        self.hosts: dict[str, Host] = {}
        self.deliveries: dict[str, list[Delivery]] = {}
        self.traces: list[effects.Trace] = []
        self.sent: list[tuple[str, str, object]] = []
        self.lanes: dict[tuple, deque] = {}
        self.drop = lambda sender, receiver, message: False
        self.corrupt = lambda chunk_id: False
        self.frozen: set[str] = set()
        for ordinal, role in enumerate(roles):
            self.start(f"{role}-{ordinal}", ordinal, Role(role), 1)

    # -- workers ---------------------------------------------------------------------------

    def start(self, worker_id: str, ordinal: int, role: Role, epoch: int) -> Host:
        host = Host(self, worker_id, ordinal, role, epoch)
        self.hosts[worker_id] = host
        self.to_router(host, Hello(info=host.info()))
        return host

    def kill(self, worker_id: str) -> None:
        host = self.hosts.pop(worker_id)
        for lane in [lane for lane in self.lanes if worker_id in lane[1:]]:
            del self.lanes[lane]
        self.feed_router(events.WorkerLost(worker_id=worker_id, epoch=host.epoch))

    def restart(self, worker_id: str, host: Host) -> None:
        self.start(worker_id, host.ordinal, host.role, host.epoch + 1)

    # -- plumbing --------------------------------------------------------------------------

    def put(self, lane: tuple, action) -> None:
        self.lanes.setdefault(lane, deque()).append(action)

    def to_router(self, host: Host, message) -> None:
        envelope = Envelope(sender_id=host.worker_id, sender_epoch=host.epoch, message=message)
        self.put(
            ("wire", host.worker_id, ROUTER),
            lambda: self.feed_router(events.Received(envelope=envelope)),
        )

    def feed_router(self, event) -> None:
        for effect in self.router.handle(event, self.now_us):
            match effect:
                case effects.Send(to=to, message=message):
                    self.sent.append((ROUTER, to, message))
                    if not self.drop(ROUTER, to, message):
                        envelope = Envelope(sender_id=ROUTER, sender_epoch=0, message=message)
                        self.put(("wire", ROUTER, to), lambda e=envelope, t=to: self.feed(t, e))
                case effects.Deliver(request_id=request_id, delivery=delivery):
                    self.deliveries.setdefault(request_id, []).append(delivery)
                case effects.Trace():
                    self.traces.append(effect)

    def feed(self, worker_id: str, event) -> None:
        host = self.hosts.get(worker_id)
        if host is None:
            return
        if isinstance(event, Envelope):
            event = events.Received(envelope=event)
        for effect in host.node.handle(event, self.now_us):
            self.perform(host, effect)

    def perform(self, host: Host, effect) -> None:
        me = host.worker_id
        match effect:
            case effects.Send(to=to, message=message):
                self.sent.append((me, to, message))
                if self.drop(me, to, message):
                    return
                if to == ROUTER:
                    self.to_router(host, message)
                else:
                    envelope = Envelope(sender_id=me, sender_epoch=host.epoch, message=message)
                    self.put(("wire", me, to), lambda: self.feed(to, envelope))
            case effects.RunBatch(batch=batch):

                def run():
                    for event in host.run(batch):
                        self.put(("engine done", me, me), lambda e=event: self.feed(me, e))

                self.put(("engine", me, me), run)
            case effects.MoveChunk():
                self.put(("plane", me, me), lambda: self.move(host, effect))
            case effects.DigestChunk(reservation_id=rid, chunk=chunk, local_blocks=blocks):

                def digest():
                    if rid not in host.cancelled:
                        event = events.ChunkDigested(
                            reservation_id=rid,
                            chunk_id=chunk.chunk_id,
                            checksum=host.checksum(chunk, blocks),
                        )
                        self.feed(me, event)

                self.put(("plane", me, me), digest)
            case effects.CancelIo(reservation_id=rid):
                host.cancelled.add(rid)
                self.put(
                    ("plane", me, me), lambda: self.feed(me, events.IoQuiesced(reservation_id=rid))
                )
            case effects.DigestKV():

                def kv():
                    values = [
                        host.read(layer, effect.block_ids, position)
                        for layer in range(LAYOUT.num_layers)
                        for position in range(effect.num_tokens)
                    ]
                    event = events.KVDigested(
                        request_id=effect.request_id,
                        generation=effect.generation,
                        kv_digest=str(mix(*values)),
                    )
                    self.feed(me, event)

                self.put(("plane", me, me), kv)
            case effects.Trace():
                self.traces.append(effect)

    def move(self, host: Host, order: effects.MoveChunk) -> None:
        if order.reservation_id in host.cancelled:
            return
        peer = self.hosts.get(order.peer_id)
        chunk = order.chunk
        error = "" if peer is not None and peer.epoch == order.peer_epoch else "peer lost"
        checksum = 0
        if not error:
            layers = slice(chunk.layer_start, chunk.layer_start + chunk.num_layers)
            source, source_blocks = (
                (host, order.local_blocks) if order.write else (peer, order.remote_blocks)
            )
            target, target_blocks = (
                (peer, order.remote_blocks) if order.write else (host, order.local_blocks)
            )
            checksum = source.checksum(chunk, source_blocks)
            data = source.rows[layers][:, list(source_blocks)].copy()
            if self.corrupt(chunk.chunk_id):
                data[0, 0, 0] ^= 1
            target.rows[layers, list(target_blocks)] = data
            if not order.write:
                checksum = target.checksum(chunk, target_blocks)
        event = events.ChunkMoved(
            reservation_id=order.reservation_id,
            chunk_id=chunk.chunk_id,
            nbytes=chunk.nbytes,
            checksum=checksum,
            duration_us=10,
            error=error,
        )
        if not error and order.write:
            arrived = events.ChunkArrived(
                source_id=host.worker_id,
                source_epoch=host.epoch,
                reservation_id=order.reservation_id,
                chunk_id=chunk.chunk_id,
                nbytes=chunk.nbytes,
                checksum=checksum,
            )
            self.put(
                ("notify", host.worker_id, peer.worker_id),
                lambda: self.feed(peer.worker_id, arrived),
            )
        self.feed(host.worker_id, event)

    # -- running ---------------------------------------------------------------------------

    def step(self) -> bool:
        """Perform one pending action; False when only time can move things."""
        lanes = [
            lane for lane, queue in self.lanes.items() if queue and not self.frozen & set(lane[1:])
        ]
        if not lanes:
            return False
        lane = self.random.choice(lanes) if self.shuffle else lanes[0]
        self.now_us += 1
        self.lanes[lane].popleft()()
        for host in self.hosts.values():
            host.node.context.memory.pool.check()
        return True

    def advance(self) -> None:
        """Let time pass to the next deadline of any node."""
        deadlines = [
            host.node.next_deadline()
            for name, host in self.hosts.items()
            if name not in self.frozen
        ]
        if self.router.next_deadline() is not None:
            deadlines.append(self.router.next_deadline())
        self.now_us = max(self.now_us + 1, min(deadlines, default=self.now_us + 1000))
        for worker_id in list(self.hosts):
            if worker_id not in self.frozen:
                self.feed(worker_id, events.Tick())
        self.feed_router(events.Tick())

    def run(self, until=None, *, limit_us: int = 600_000_000, max_steps: int = 400_000) -> None:
        """Run until `until()` holds, or until every request has ended and nothing is pending."""
        until = until or (lambda: not self.router.records and not any(self.lanes.values()))
        for _ in range(max_steps):
            if until():
                return
            if not self.step():
                self.advance()
            assert self.now_us < limit_us, "stuck"
        raise AssertionError("no end within the step bound")

    def settle(self, quiet_us: int = 30_000_000) -> None:
        """Run on until time has passed for every lease and retry to end."""
        end = self.now_us + quiet_us
        self.run(lambda: self.now_us >= end, limit_us=end + 10_000_000)

    def submit(self, request_id: str, prompt, *, cancel_at: int | None = None, **sampling) -> None:
        sampling = {"max_tokens": 6, "temperature": 0.0, "ignore_eos": True, **sampling}
        verify = sampling.pop("verify", False)
        extra = {k: sampling.pop(k) for k in ("tenant_id", "cache_salt") if k in sampling}
        request = Request(
            request_id=request_id,
            prompt_token_ids=tuple(prompt),
            sampling=SamplingParams(**sampling),
            verify=verify,
            **extra,
        )
        self.feed_router(events.Submitted(request=request))

    def cancel(self, request_id: str, reason: str = "disconnect") -> None:
        self.feed_router(events.Cancelled(request_id=request_id, reason=reason))

    def text(self, request_id: str) -> list[int]:
        return [
            token.token_id
            for delivery in self.deliveries.get(request_id, [])
            if isinstance(delivery, Tokens)
            for token in delivery.tokens
        ]

    def end(self, request_id: str) -> Finished | Failed:
        ends = [d for d in self.deliveries[request_id] if isinstance(d, Finished | Failed)]
        assert len(ends) == 1, ends
        return ends[0]

    def started(self, request_id: str) -> Started:
        return next(d for d in self.deliveries[request_id] if isinstance(d, Started))

    def assert_nothing_held(self) -> None:
        """The leak check: at quiescence every block is free or history, nothing is open."""
        for host in self.hosts.values():
            pool = host.node.context.memory.pool
            pool.check()
            held = (pool.num_used, pool.num_quarantined)
            assert held == (0, 0), (host.worker_id, held)
            assert not host.node.source.jobs
            assert not host.node.destination.incoming
            assert not host.node.decode.live and not host.node.decode.ended
            assert not host.node.queue.waiting and not host.node.queue.running
            assert len(host.node.directory) == 0
            assert not host.node.source.leases and not host.node.destination.leases
        assert not self.router.records and self.router.num_waiting == 0
        for view in self.router.fleet:
            assert not view.prefill_tokens and not view.decode_blocks


def reference(prompt, **sampling) -> list[int]:
    """The colocated answer of a fresh cluster."""
    cluster = Cluster(("mixed",), shuffle=False)
    cluster.run(lambda: not cluster.router.missing(cluster.now_us))
    cluster.submit("reference", prompt, **sampling)
    cluster.run()
    return cluster.text("reference")
