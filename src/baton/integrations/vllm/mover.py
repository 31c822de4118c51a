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
from baton.integrations.vllm.context import PeerKey
from baton.integrations.vllm.link import Link
from baton.integrations.vllm.memory import fits, offsets, put_runs
from baton.integrations.vllm.messages import (
    CacheMap,
    Decline,
    Envelope,
    Message,
    NotPaired,
    Pair,
    Paired,
    Status,
    StatusQuestion,
)
from baton.integrations.vllm.node import Node
from baton.integrations.vllm.orders import Ended, StepOrders
from baton.integrations.vllm.outputs import Answer, Join, Meet, Output, Part, Tell
from baton.integrations.vllm.process import is_dead
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
_STEP_END = -1


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class Mover:
    """Runs a node; orders and layers come from vLLM's thread, answers are taken by it."""

    def __init__(
        self, node: Node, hello: Pair, make_link: Callable[[], Link], plane: DataPlane
    ) -> None:
        self.node = node
        self._hello = hello
        self._paired = Paired(
            info=hello.info, region=hello.region, cache=hello.cache, process=hello.process
        )
        self._plane = plane
        self._caches: dict[PeerKey, CacheMap] = {}
        self._processes: dict[PeerKey, Pair | Paired] = {}
        self._handles: dict[int, MoveChunk | DigestChunk] = {}
        self._wakes: queue.SimpleQueue[StepOrders | int | None] = queue.SimpleQueue()
        self._doorbell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ended: list[Ended] = []
        self._lock = threading.Condition()
        self._looked_s = 0.0
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
        timeout_ms = _IDLE_POLL_MS if self.node.is_idle else _BUSY_POLL_MS
        ready = dict(self._link.poller.poll(timeout_ms))
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
            event = self._event(completion)
            if event is not None:
                self._perform(self.node.on_event(event, _now_us()))
        self._look_after_peers()
        self._perform(self.node.on_tick(_now_us()))
        return True

    def _from_vllm(self, item: StepOrders | int) -> list[Output]:
        if isinstance(item, StepOrders):
            return self.node.on_orders(item.orders, _now_us())
        if item == _STEP_END:
            return self.node.on_step_end(_now_us())
        return self.node.on_layer(item, _now_us())

    def _receive(self, envelope: Envelope, routing_id: bytes) -> None:
        message, sender = envelope.message, (envelope.sender_id, envelope.sender_epoch)
        if isinstance(message, StatusQuestion):
            self._link.reply(routing_id, self._envelope(self._status()))
            return
        self._perform(self.node.on_message(sender, message, _now_us()))
        if isinstance(message, Decline) and not envelope.sender_epoch:
            self._link.reply(routing_id, self._envelope(self._status()))

    def _status(self) -> Status:
        return replace(self.node.status(), bytes_per_us=self._plane.rates().bytes_per_us)

    def _event(
        self, completion: Completion
    ) -> ChunkMoved | ChunkDigested | ChunkArrived | IoQuiesced | None:
        if isinstance(completion, Quiesced):
            return IoQuiesced(reservation_id=completion.reservation_id)
        if isinstance(completion, Received):
            return ChunkArrived(
                source_id=completion.source_id,
                source_epoch=completion.source_epoch,
                reservation_id=completion.reservation_id,
                chunk_id=completion.chunk_id,
                nbytes=completion.nbytes,
                checksum=completion.checksum,
            )
        return self._finished(completion)

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

    def _perform(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Tell():
                    key = (output.worker_id, output.epoch)
                    self._link.send(key, self._envelope(output.message))
                case Meet():
                    self._meet(output)
                case Join():
                    self._join(output.hello)
                case Part():
                    self._part((output.worker_id, output.epoch))
                case Answer():
                    with self._lock:
                        self._ended.append(output.ended)
                        self._lock.notify_all()
                case MoveChunk():
                    self._move(output)
                case DigestChunk():
                    self._digest(output)
                case CancelIo():
                    self._plane.cancel(output.reservation_id)

    def _envelope(self, message: Message) -> Envelope:
        info = self._hello.info
        return Envelope(
            sender_id=info.member.worker_id,
            sender_epoch=info.member.epoch,
            sender_rank=info.rank,
            message=message,
        )

    def _meet(self, meet: Meet) -> None:
        key = (meet.member.worker_id, meet.member.epoch)
        if self._link.open(meet.member, self._hello.info.rank):
            self._link.send(key, self._envelope(self._hello))
        else:
            self._perform(self.node.on_not_joined(key, "source_unreachable", _now_us()))

    def _join(self, hello: Pair | Paired) -> None:
        key = (hello.info.member.worker_id, hello.info.member.epoch)
        own = self._paired if isinstance(hello, Pair) else None
        if key not in self._caches:
            try:
                if not fits(hello.cache, hello.region.nbytes):
                    raise BatonError(f"the cache map of {key[0]} leaves its region")
                if hello.cache.block_nbytes != self._hello.cache.block_nbytes:
                    raise BatonError(
                        f"blocks have {self._hello.cache.block_nbytes} bytes here and "
                        f"{hello.cache.block_nbytes} at {key[0]}"
                    )
                self._plane.connect(hello.region)
            except BatonError as error:
                if own is not None:
                    self._link.send(key, self._envelope(NotPaired(reason=str(error))))
                self._perform(self.node.on_not_joined(key, str(error), _now_us()))
                return
            self._caches[key] = hello.cache
            self._processes[key] = hello
        self._perform(self.node.on_joined(hello, own, _now_us()))

    def _part(self, key: PeerKey) -> None:
        self._caches.pop(key, None)
        self._processes.pop(key, None)
        self._plane.disconnect(*key)
        self._link.shut(key)

    def _look_after_peers(self) -> None:
        if time.monotonic() - self._looked_s < _LOOK_S:
            return
        self._looked_s = time.monotonic()
        for key, hello in list(self._processes.items()):
            if is_dead(hello.process):
                self._perform(self.node.on_peer_lost(key, _now_us()))

    def _move(self, order: MoveChunk) -> None:
        key = (order.peer_id, order.peer_epoch)
        spec = order.chunk
        layers = range(spec.layer_start, spec.layer_start + spec.num_layers)
        cache = self._caches.get(key, self._hello.cache)  # a lost peer's put fails by itself
        handle = self._plane.put(
            PutOrder(
                peer_id=order.peer_id,
                peer_epoch=order.peer_epoch,
                reservation_id=order.reservation_id,
                chunk_id=spec.chunk_id,
                direction="write" if order.write else "read",
                runs=put_runs(
                    self._hello.cache, cache, layers, order.local_blocks, order.remote_blocks
                ),
            )
        )
        self._handles[handle] = order

    def _digest(self, order: DigestChunk) -> None:
        spec, cache = order.chunk, self._hello.cache
        layers = range(spec.layer_start, spec.layer_start + spec.num_layers)
        handle = self._plane.digest(
            DigestOrder(
                reservation_id=order.reservation_id,
                chunk_id=spec.chunk_id,
                runs=tuple(
                    (offset, cache.block_nbytes)
                    for offset in offsets(cache, layers, order.local_blocks)
                ),
            )
        )
        self._handles[handle] = order
