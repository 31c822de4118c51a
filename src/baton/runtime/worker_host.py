"""The real host of a worker node: sockets, shared memory, threads and the clock."""

import asyncio
import os

import msgspec
from msgspec.structs import replace

from baton import __version__
from baton.core import effects, events
from baton.core.effects import Effect
from baton.core.events import Event
from baton.core.ids import Role
from baton.core.messages import (
    Hello,
    Load,
    PeerDown,
    PeerUp,
    Prefill,
    Refused,
    Welcome,
)
from baton.core.request import SamplingParams
from baton.core.snapshot import Rates, WorkerInfo
from baton.core.work import Batch, WorkItem
from baton.engine.engine import Engine
from baton.errors import BatonError, RemoteProtocolError
from baton.nodes.context import ROUTER
from baton.nodes.worker import Worker
from baton.runtime.chunk_cost import LoopTime
from baton.runtime.clock import now_us
from baton.runtime.dataplane import DataPlane
from baton.runtime.descriptors import DescriptorReserve
from baton.runtime.engine_thread import EngineThread
from baton.runtime.farewells import Farewells
from baton.runtime.faults import FaultyPlane, open_channel
from baton.runtime.introduction import check_introduction
from baton.runtime.mover import ChunkMover
from baton.runtime.notice import notice
from baton.runtime.pipeline import PipelineEngine, StepEngine
from baton.runtime.pipeline.stage_process import StageProcess
from baton.runtime.pool_memory import PoolMemory
from baton.runtime.regions import PoolShape
from baton.runtime.spec import WorkerSpec
from baton.runtime.staging_thread import StagingThread
from baton.runtime.tiers import WorkerTiers
from baton.runtime.trace_feed import TraceFeed
from baton.runtime.trace_log import TraceLog
from baton.runtime.versions import COMPUTING, versions_of

_WARM_UP_ROWS = 64


class WorkerHost:
    """Feeds events to the node and performs its effects; three things progress independently.

    The engine computes in its thread, the data plane copies in its own, and this loop answers
    messages and sends heartbeats whatever the other two do.
    """

    def __init__(
        self, spec: WorkerSpec, engine: Engine | PipelineEngine, num_blocks: int, plane: DataPlane
    ) -> None:
        self._spec = spec
        self._engine = engine
        self._num_blocks = num_blocks
        self._layout = engine.info.layout
        self._stages = engine.stages if isinstance(engine, PipelineEngine) else ()
        self._peers: dict[str, WorkerInfo] = {}
        self._stop = asyncio.Event()
        self._refused = ""
        self._failure = ""
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._trace = TraceLog(spec.worker_id, spec.trace_path)
        self._trace.started()
        self._trace_feed = TraceFeed(is_on=spec.config.telemetry.live)
        self._loop = asyncio.get_running_loop()
        self._memory = PoolMemory(spec, engine, num_blocks)
        staging, memory = self._memory.staging, self._memory.arenas[0].buffer
        self._tiers = WorkerTiers.open(
            spec, engine.info, memory, num_blocks, staging, self._feed, self._fail
        )
        self._plane = plane
        self._region = self._memory.register(self._plane)
        self._channel = open_channel(
            spec.worker_id, spec.epoch, spec.endpoint, spec.control_keys, spec.faults
        )
        self._descriptors = DescriptorReserve(spec.worker_id)
        self._greeting: asyncio.TimerHandle | None = None
        self._mover = ChunkMover(
            self._plane,
            self._layout,
            num_blocks,
            self._feed,
            checksum=spec.config.transfer.checksum,
            staging=StagingThread(staging, self._loop) if staging else None,
        )
        self._farewells = Farewells(self._plane, self._loop, self._feed)
        self._threads = EngineThread(engine, self._loop, self._feed, self._fail)
        self._loop_time = LoopTime()
        self._node = self._make_node()

    def _make_node(self) -> Worker:
        spec, rates = self._spec, self._plane.calibrate()
        return Worker(
            worker_id=spec.worker_id,
            ordinal=spec.ordinal,
            epoch=spec.epoch,
            role=spec.role,
            model=self._engine.info,
            num_blocks=self._num_blocks,
            num_host_blocks=self._tiers.capacity.num_host_blocks,
            num_disk_blocks=self._tiers.capacity.num_disk_blocks,
            worker=spec.config.worker,
            cache=spec.config.cache,
            transfer=spec.config.transfer,
            heartbeat_ms=spec.config.router.heartbeat_ms,
            verifier=spec.issuer.verifier(),
            rates=Rates(
                prefill_us_per_token=warm_up(self._engine, self._num_blocks),
                transfer_bytes_per_us=rates.bytes_per_us,
                transfer_overhead_us=rates.overhead_us,
                transfer_run_us=rates.run_us,
                digest_bytes_per_us=rates.digest_bytes_per_us,
            ),
        )

    async def run(self) -> str:
        """Serve until stopped; returns why the router refused this worker, or "".

        Raises BatonError when this life cannot go on: the supervisor starts the next one.
        """
        self._loop.add_reader(self._plane.fileno(), self._mover.on_readable)
        for stage in self._stages:
            self._loop.add_reader(stage.exit_fd, self._on_stage_ended, stage)
        self._channel.admit(ROUTER, 0, self._spec.router_key)
        self._channel.connect(ROUTER, self._spec.router_endpoint, self._spec.router_key)
        self._greet()
        receiving = asyncio.create_task(self._receive())
        if self._tiers.recovered is not None:
            self._feed(self._tiers.recovered)
        self._feed(events.Tick())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
        failure = receiving.exception() if receiving.done() else None
        receiving.cancel()
        self._close()
        if failure is not None:
            raise failure
        if self._failure:
            raise BatonError(self._failure)
        return self._refused

    def stop(self) -> None:
        """Ask `run` to return."""
        self._stop.set()

    def _fail(self, reason: str) -> None:
        """This life cannot go on; heartbeats without it would be a lie."""
        self._failure = self._failure or reason
        self.stop()

    def _on_stage_ended(self, stage: StageProcess) -> None:
        self._loop.remove_reader(stage.exit_fd)
        self._fail(str(stage.lost()))

    def _greet(self) -> None:
        """Say hello until the router has answered: the first words may be lost too."""
        self._channel.send(ROUTER, Hello(info=self._info()))
        retry_s = self._spec.config.transfer.retry_ms / 1000
        self._greeting = self._loop.call_later(retry_s, self._greet)

    def _close(self) -> None:
        self._closed = True
        for timer in (self._timer, self._greeting):
            if timer is not None:
                timer.cancel()
        self._threads.close()
        self._mover.close()
        self._tiers.close()
        self._loop.remove_reader(self._plane.fileno())
        self._plane.close()
        self._channel.close()
        self._descriptors.close()
        for stage in self._stages:
            self._loop.remove_reader(stage.exit_fd)
            stage.close()
        self._engine.unbind_pool()
        self._memory.close()
        self._trace.close()

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            worker_id=self._spec.worker_id,
            epoch=self._spec.epoch,
            role=self._spec.role,
            pid=os.getpid(),
            version=__version__,
            endpoint=self._channel.endpoint,
            model=self._engine.info,
            num_blocks=self._num_blocks,
            max_num_seqs=self._spec.config.worker.max_admitted,
            region=msgspec.msgpack.encode(self._region),
            control_key=self._spec.control_keys.public if self._spec.control_keys else b"",
            versions=tuple(versions_of(COMPUTING).items()),
        )

    # -- events --------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            envelope = await self._channel.receive()
            match envelope.message:
                case PeerUp() | PeerDown() | Refused() | Welcome() if envelope.sender_id != ROUTER:
                    self._channel.counters["forged_senders"] += 1
                    continue
                case PeerUp(info=info):
                    if not await self._connect(info):
                        continue
                case PeerDown() as down if down.worker_id != ROUTER:
                    self._disconnect(down)
                    envelope = self._farewells.on_down(envelope, down)
                case Welcome(epoch=epoch) if epoch == self._spec.epoch and self._greeting:
                    self._greeting.cancel()
                    self._greeting = None
                case Refused(reason=reason):
                    self._refused = reason
                    self.stop()
                    return
            self._loop_time.num_requests += isinstance(envelope.message, Prefill)
            self._feed(events.Received(envelope=envelope))

    async def _connect(self, info: WorkerInfo) -> bool:
        """Map a peer before the node may be told of it; messages wait their turn meanwhile."""
        known = self._peers.get(info.worker_id)
        if known is not None and known.epoch >= info.epoch:
            return True
        try:
            if info.worker_id == self._spec.worker_id:
                raise RemoteProtocolError(f"epoch {info.epoch} has the name of this worker")
            region = check_introduction(info, control=self._channel.control)
            await self._loop.run_in_executor(None, self._plane.connect, region)
            self._channel.admit(info.worker_id, info.epoch, info.control_key)
            self._channel.connect(info.worker_id, info.endpoint, info.control_key)
        except Exception as error:
            # Whatever a peer says of itself, it ends no other worker. The router repeats what a
            # heartbeat shows to be missing, so this is tried again.
            notice(self._spec.worker_id, f"cannot map {info.worker_id}: {error}")
            return False
        self._peers[info.worker_id] = info
        return True

    def _disconnect(self, down: PeerDown) -> None:
        """One that may still run is heard: it can say that it is quiet, and be asked to."""
        peer = self._peers.get(down.worker_id)
        if peer is not None and peer.epoch <= down.epoch:
            del self._peers[down.worker_id]
        if down.ended:
            if down.worker_id not in self._peers:
                self._channel.disconnect(down.worker_id)
            self._channel.withdraw(down.worker_id, down.epoch)

    def _feed(self, event: Event) -> None:
        if self._closed:
            return  # a thread's last word
        at_us = now_us()
        try:
            for effect in self._node.handle(event, at_us):
                self._perform(effect)
        except Exception as error:
            # The effects that follow are lost, so nothing that this node says holds any more.
            self._fail(f"the worker ended at {type(event).__name__}: {error!r}")
            raise
        self._arm(at_us)

    def _arm(self, at_us: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, self._node.next_deadline() - at_us) / 1e6
        self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._mover.on_readable()  # what was put off when descriptors had run out
        self._feed(events.Tick())

    # -- effects -------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case effects.Send(to=to, message=message):
                if isinstance(message, Load):
                    message = self._measured(message)
                    self._tell_traced()
                self._channel.send(to, message)
            case effects.RunBatch(batch=batch):
                self._threads.submit(batch)
            case effects.MoveChunk():
                self._loop_time.num_chunks += effect.write
                self._move(effect)
            case effects.DigestChunk():
                self._loop_time.num_chunks += not effect.inward
                self._mover.digest(effect)
            case effects.CancelIo(reservation_id=reservation_id):
                self._mover.cancel(reservation_id)
            case effects.DigestKV():
                self._threads.submit(effect)
            case effects.CopyBlock() | effects.DropBlock() | effects.ClearTiers():
                self._tiers.perform(effect)
            case effects.Trace():
                done_us = now_us()  # what was decided holds from here on, not from its cause on
                self._trace.record(effect, done_us)
                self._trace_feed.add(effect, done_us)
            case _:
                raise AssertionError(f"a worker host cannot {type(effect).__name__}")

    def _move(self, effect: effects.MoveChunk) -> None:
        peer = self._peers.get(effect.peer_id)
        live = peer is not None and peer.epoch == effect.peer_epoch
        shape = PoolShape(peer.model.layout, peer.num_blocks) if peer is not None and live else None
        self._mover.move(effect, shape)

    def _tell_traced(self) -> None:
        traced = self._trace_feed.take(now_us())
        if traced is not None:
            self._channel.send(ROUTER, traced)

    def _measured(self, message: Load) -> Load:
        """The heartbeat with what only the host can count and measure."""
        snapshot = message.snapshot
        snapshot.counters.update(self._host_counters())
        overhead_us = snapshot.rates.transfer_overhead_us + self._loop_time.chunk_us()
        rates = replace(snapshot.rates, transfer_overhead_us=overhead_us)
        return Load(snapshot=replace(snapshot, rates=rates))

    def _host_counters(self) -> dict[str, int]:
        stats = self._plane.stats()
        flips = self._plane.num_flips if isinstance(self._plane, FaultyPlane) else 0
        return {
            **{f"channel_{name}": count for name, count in self._channel.counters.items()},
            **({"plane_injected_flips": flips} if flips else {}),
            **self._tiers.counters(),
            "trace_dropped_events": self._trace.num_dropped + self._trace_feed.num_dropped,
            "plane_dropped_notifications": stats.dropped_notifications,
            "plane_refused_connections": stats.refused_connections,
            "plane_orders": stats.orders,
            "plane_runs": stats.runs,
            **{f"plane_orders_{lane}": count for lane, count in stats.lanes.items()},
        }


def warm_up(engine: StepEngine, num_blocks: int) -> float:
    """Run a prefill and a decode step on a pool that holds nothing yet; returns us per row.

    Kernels are loaded and rates are known before the first request pays for either.
    """
    layout = engine.info.layout
    rows = min(_WARM_UP_ROWS, num_blocks * layout.block_size - 1, engine.info.max_model_len - 1)
    table = tuple(range(layout.num_blocks(rows + 1)))
    duration_us = 0
    for number in range(2):
        for start, count in ((0, rows), (rows, 1)):
            item = WorkItem(
                request_id="warm-up",
                generation=number,
                token_ids=(0,) * count,
                start=start,
                num_prompt_tokens=rows,
                block_table=table,
                sample=True,
                sampling=SamplingParams(max_tokens=2, temperature=0.0),
            )
            result = engine.execute(Batch(batch_id=0, items=(item,)))
            if result.error:
                raise BatonError(f"the engine failed its first step: {result.error}")
            duration_us = result.duration_us if count > 1 else duration_us
    return duration_us / rows


def num_pool_blocks(engine: StepEngine, spec: WorkerSpec) -> int:
    """Blocks of the pool: what `worker.kv_nbytes` buys, but no more than could ever be used."""
    layout, worker = engine.info.layout, spec.config.worker
    kv_nbytes = spec.config.kv_nbytes_of(spec.role)
    is_own = spec.role is Role.DECODE and spec.config.cluster.decode_kv_nbytes
    field = "cluster.decode_kv_nbytes" if is_own else "worker.kv_nbytes"
    affordable = kv_nbytes // layout.bytes_per_block
    per_sequence = layout.num_blocks(engine.info.max_model_len) + 1
    usable = per_sequence * (worker.max_admitted + worker.max_reservations)
    blocks = min(affordable, usable)
    if blocks < 2:
        raise BatonError(
            f"{field} {kv_nbytes} holds {blocks} blocks of "
            f"{layout.bytes_per_block} bytes; raise it to at least {2 * layout.bytes_per_block}"
        )
    if layout.layer_block_nbytes > spec.config.transfer.credit_nbytes:
        raise BatonError(
            f"transfer.credit_nbytes {spec.config.transfer.credit_nbytes} is less than one block "
            f"of one layer, {layout.layer_block_nbytes} bytes; raise it or lower worker.block_size"
        )
    return blocks
