"""The host of one rank's node: a thread with its sockets, its data plane and its clock."""

import os
import queue
import threading
import time
import traceback
from collections.abc import Callable

import zmq
from msgspec.structs import replace

from baton.core.effects import CancelIo, DigestChunk, MoveChunk
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved, IoQuiesced
from baton.errors import BatonError
from baton.integrations.vllm.cut import PeerRank
from baton.integrations.vllm.legs import LegOutput, Legs, RankKey
from baton.integrations.vllm.link import Link, rank_key
from baton.integrations.vllm.memory import fits, offsets, put_runs
from baton.integrations.vllm.messages import (
    CacheMap,
    Decline,
    Envelope,
    HandoffQuestion,
    Message,
    NotPaired,
    Pair,
    Paired,
    Status,
    StatusQuestion,
)
from baton.integrations.vllm.orders import Ended, StepOrders
from baton.integrations.vllm.outputs import Answer, Join, Meet, Part, Tell
from baton.integrations.vllm.process import is_dead, this_host
from baton.runtime.dataplane import (
    Completion,
    DataPlane,
    DigestOrder,
    Finished,
    PutOrder,
    Quiesced,
    Received,
)

_BUSY_POLL_MS = 20
_IDLE_POLL_MS = 250
_LOOK_S = 0.2
"""How often known processes are looked after."""
_LATE_S = 0.2
"""A turn that took longer heard nobody meanwhile: what waits is read before leases are judged."""
_STEP_END = -1


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def plane_id(worker_id: str, rank: int) -> str:
    """What one rank of a worker is called on the data plane, where each is reached by itself."""
    return f"{worker_id}/{rank}"


class Mover:
    """Runs a rank's legs; orders and layers come from vLLM's thread, answers are taken by it."""

    def __init__(
        self, legs: Legs, hello: Pair, make_link: Callable[[], Link], plane: DataPlane
    ) -> None:
        self.legs = legs
        self._hello = hello
        self._paired = Paired(
            info=hello.info, region=hello.region, cache=hello.cache, process=hello.process
        )
        self._plane = plane
        self._caches: dict[RankKey, CacheMap] = {}
        self._processes: dict[RankKey, Pair | Paired] = {}
        self._handles: dict[int, MoveChunk | DigestChunk] = {}
        self._wakes: queue.SimpleQueue[StepOrders | int | None] = queue.SimpleQueue()
        self._doorbell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ended: list[Ended] = []
        self._lock = threading.Condition()
        self._looked_s = 0.0
        self._was_late = False
        self.failure = ""
        started = threading.Event()
        errors: list[BaseException] = []
        self._thread = threading.Thread(
            target=self._main, args=(make_link, started, errors), name="baton-mover", daemon=True
        )
        self._thread.start()
        started.wait()
        if errors:
            raise errors[0]

    # -- vLLM's thread -------------------------------------------------------------------------

    def order(self, orders: StepOrders) -> None:
        """Hand over the orders of a step."""
        self._wake(orders)

    def layer(self, layer: int) -> None:
        """The running step has written a layer of the cache."""
        self._wake(layer)

    def step_end(self) -> None:
        """The running step has written all of them."""
        self._wake(_STEP_END)

    def take(self, wait_s: float = 0.0) -> list[Ended]:
        """What is over since the last call; waits up to `wait_s` for something."""
        with self._lock:
            if not self._ended and wait_s and not self.failure:
                self._lock.wait(wait_s)
            ended, self._ended = self._ended, []
        if self.failure:
            raise BatonError(f"the connector's thread ended: {self.failure}")
        return ended

    def close(self) -> None:
        """Stop; what is open is left to the peers' leases."""
        self._wake(None)
        self._thread.join(timeout=5)
        self._plane.close()

    def _wake(self, item: StepOrders | int | None) -> None:
        self._wakes.put(item)
        os.eventfd_write(self._doorbell, 1)

    # -- the thread ----------------------------------------------------------------------------

    def _main(
        self,
        make_link: Callable[[], Link],
        started: threading.Event,
        errors: list[BaseException],
    ) -> None:
        try:
            self._link = make_link()
        except BaseException as error:
            errors.append(error)
            return
        finally:
            started.set()
        try:
            self._link.poller.register(self._doorbell, zmq.POLLIN)
            self._link.poller.register(self._plane.fileno(), zmq.POLLIN)
            while self._turn():
                pass
        except BaseException as error:  # vLLM must hear of it rather than wait for ever
            traceback.print_exc()
            with self._lock:
                self.failure = f"{type(error).__name__}: {error}"
                self._lock.notify_all()
        finally:
            self._link.close()

    def _turn(self) -> bool:
        timeout_ms = _IDLE_POLL_MS if self.legs.is_idle else _BUSY_POLL_MS
        ready = dict(self._link.poller.poll(timeout_ms))
        began_s = time.monotonic()
        if self._doorbell in ready:
            os.eventfd_read(self._doorbell)
        while True:
            try:
                item = self._wakes.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return False
            self._perform(self._from_vllm(item))
        for envelope, routing_id in self._link.receive(ready):
            self._receive(envelope, routing_id)
        for completion in self._plane.poll():
            self._perform(self._completed(completion))
        self._look_after_peers()
        self._was_late = not self._was_late and time.monotonic() - began_s > _LATE_S
        if not self._was_late:
            self._perform(self.legs.on_tick(_now_us()))
        return True

    def _from_vllm(self, item: StepOrders | int) -> list[LegOutput]:
        if isinstance(item, StepOrders):
            return self.legs.on_orders(item.orders, _now_us())
        if item == _STEP_END:
            return self.legs.on_step_end(_now_us())
        return self.legs.on_layer(item, _now_us())

    def _receive(self, envelope: Envelope, routing_id: bytes) -> None:
        message, sender = envelope.message, rank_key(envelope)
        if isinstance(message, StatusQuestion):
            self._link.reply(routing_id, self._envelope(self._status()))
            return
        if isinstance(message, HandoffQuestion):
            answer = self.legs.answer(message, this_host(), _now_us())
            self._link.reply(routing_id, self._envelope(answer))
            return
        self._perform(self.legs.on_message(sender, envelope.sender_tp, message, _now_us()))
        if isinstance(message, Decline) and not envelope.sender_epoch:
            self._link.reply(routing_id, self._envelope(self._status()))

    def _status(self) -> Status:
        return replace(self.legs.status(), bytes_per_us=self._plane.rates().bytes_per_us)

    def _completed(self, completion: Completion) -> list[LegOutput]:
        if isinstance(completion, Quiesced):
            quiet = IoQuiesced(reservation_id=completion.reservation_id)
            return self.legs.on_event(quiet, _now_us())
        if isinstance(completion, Received):
            worker_id, _, rank = completion.source_id.rpartition("/")
            arrived = ChunkArrived(
                source_id=worker_id,
                source_epoch=completion.source_epoch,
                reservation_id=completion.reservation_id,
                chunk_id=completion.chunk_id,
                nbytes=completion.nbytes,
                checksum=completion.checksum,
            )
            return self.legs.on_event(arrived, _now_us(), from_rank=int(rank))
        finished = self._finished(completion)
        return self.legs.on_event(finished, _now_us()) if finished is not None else []

    def _finished(self, completion: Finished) -> ChunkMoved | ChunkDigested | None:
        order = self._handles.pop(completion.handle, None)
        if order is None:
            return None
        error = f"{completion.error}: {completion.detail}" if completion.error else ""
        if isinstance(order, DigestChunk):
            return ChunkDigested(
                reservation_id=completion.reservation_id,
                chunk_id=completion.chunk_id,
                checksum=completion.checksum,
                error=error,
            )
        return ChunkMoved(
            reservation_id=completion.reservation_id,
            chunk_id=completion.chunk_id,
            nbytes=completion.nbytes,
            checksum=completion.checksum,
            duration_us=completion.duration_us,
            error=error,
        )

    # -- effects -------------------------------------------------------------------------------

    def _perform(self, outputs: list[LegOutput]) -> None:
        for leg, output in outputs:
            match output:
                case Tell():
                    key = (output.worker_id, output.epoch, leg.rank)
                    self._link.send(key, self._envelope(output.message))
                case Meet():
                    self._meet(leg, output)
                case Join():
                    self._join(leg, output.hello)
                case Part():
                    self._part((output.worker_id, output.epoch, leg.rank))
                case Answer():
                    with self._lock:
                        self._ended.append(output.ended)
                        self._lock.notify_all()
                case MoveChunk():
                    self._move(leg, output)
                case DigestChunk():
                    self._digest(leg, output)
                case CancelIo():
                    self._plane.cancel(output.reservation_id)

    def _envelope(self, message: Message) -> Envelope:
        info = self._hello.info
        return Envelope(
            sender_id=info.member.worker_id,
            sender_epoch=info.member.epoch,
            sender_rank=info.rank,
            sender_tp=info.facts.tp_size,
            message=message,
        )

    def _meet(self, leg: PeerRank, meet: Meet) -> None:
        life = (meet.member.worker_id, meet.member.epoch)
        if self._link.open(meet.member, leg.rank):
            self._link.send((*life, leg.rank), self._envelope(self._hello))
        else:
            why = "source_unreachable"
            self._perform(self.legs.on_not_joined(leg, life, why, _now_us()))

    def _join(self, leg: PeerRank, hello: Pair | Paired) -> None:
        life = (hello.info.member.worker_id, hello.info.member.epoch)
        key = (*life, leg.rank)
        own = self._paired if isinstance(hello, Pair) else None
        if key not in self._caches:
            try:
                _check_region(hello)
                self._plane.connect(hello.region)
            except BatonError as error:
                if own is not None:
                    self._link.send(key, self._envelope(NotPaired(reason=str(error))))
                self._perform(self.legs.on_not_joined(leg, life, str(error), _now_us()))
                return
            self._caches[key] = hello.cache
            self._processes[key] = hello
        self._perform(self.legs.on_joined(leg, hello, own, _now_us()))

    def _part(self, key: RankKey) -> None:
        self._caches.pop(key, None)
        self._processes.pop(key, None)
        self._plane.disconnect(plane_id(key[0], key[2]), key[1])
        self._link.shut(key)

    def _look_after_peers(self) -> None:
        if time.monotonic() - self._looked_s < _LOOK_S:
            return
        self._looked_s = time.monotonic()
        for key, hello in list(self._processes.items()):
            if is_dead(hello.process):
                self._perform(self.legs.on_peer_lost(key, _now_us()))

    def _move(self, leg: PeerRank, order: MoveChunk) -> None:
        key = (order.peer_id, order.peer_epoch, leg.rank)
        spec = order.chunk
        layers = range(spec.layer_start, spec.layer_start + spec.num_layers)
        cache = self._caches.get(key, self._hello.cache)  # a lost peer's put fails by itself
        pieces = [
            (piece.source_offset, piece.destination_offset, piece.nbytes)
            if order.write
            else (piece.destination_offset, piece.source_offset, piece.nbytes)
            for piece in self.legs.pieces(leg, is_source=order.write)
        ]
        handle = self._plane.put(
            PutOrder(
                peer_id=plane_id(order.peer_id, leg.rank),
                peer_epoch=order.peer_epoch,
                reservation_id=order.reservation_id,
                chunk_id=spec.chunk_id,
                direction="write" if order.write else "read",
                runs=put_runs(
                    self._hello.cache,
                    cache,
                    layers,
                    order.local_blocks,
                    order.remote_blocks,
                    pieces,
                ),
            )
        )
        self._handles[handle] = order

    def _digest(self, leg: PeerRank, order: DigestChunk) -> None:
        spec, cache = order.chunk, self._hello.cache
        layers = range(spec.layer_start, spec.layer_start + spec.num_layers)
        pieces = [
            (piece.destination_offset if order.inward else piece.source_offset, piece.nbytes)
            for piece in self.legs.pieces(leg, is_source=not order.inward)
        ]
        handle = self._plane.digest(
            DigestOrder(
                reservation_id=order.reservation_id,
                chunk_id=spec.chunk_id,
                runs=tuple(
                    (offset + start, nbytes)
                    for offset in offsets(cache, layers, order.local_blocks)
                    for start, nbytes in pieces
                ),
            )
        )
        self._handles[handle] = order


def _check_region(hello: Pair | Paired) -> None:
    """Raise BatonError for memory that is not the cache that the peer says it is."""
    info, cache = hello.info, hello.cache
    name = plane_id(info.member.worker_id, info.rank)
    if (hello.region.worker_id, hello.region.epoch) != (name, info.member.epoch):
        raise BatonError(f"the region of {name} is that of {hello.region.worker_id}")
    if not fits(cache, hello.region.nbytes):
        raise BatonError(f"the cache map of {name} leaves its region")
    if cache.block_nbytes != info.layout.layer_block_nbytes:
        raise BatonError(
            f"blocks have {cache.block_nbytes} bytes at {name}, and its layout says "
            f"{info.layout.layer_block_nbytes}"
        )
