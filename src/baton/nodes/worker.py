"""The worker node: events in, effects out. Any role; colocated is source = destination."""

from collections import Counter, defaultdict

from baton.config import CacheConfig, TransferConfig, WorkerConfig
from baton.core import events, messages
from baton.core.effects import Effect
from baton.core.events import Event
from baton.core.ids import Fence, Role
from baton.core.layout import ModelInfo
from baton.core.messages import Envelope, Message, fence_of
from baton.core.snapshot import LoadSnapshot, Rates
from baton.nodes.announcer import Announcer
from baton.nodes.context import ROUTER, WorkerContext
from baton.nodes.decode_side import DecodeSide
from baton.nodes.destination_side import DestinationSide
from baton.nodes.engine_queue import EngineQueue
from baton.nodes.local_side import LocalSide
from baton.nodes.peers import Peers
from baton.nodes.rates import RateMeter
from baton.nodes.sequence import Sequence
from baton.nodes.source_side import SourceSide
from baton.nodes.tier_side import TierSide
from baton.protocol.directory import Directory
from baton.protocol.signing import Verifier


class Worker:
    """Composes the four sides of a worker over one memory, one engine queue and one directory."""

    def __init__(
        self,
        *,
        worker_id: str,
        ordinal: int,
        epoch: int,
        role: Role,
        model: ModelInfo,
        num_blocks: int,
        worker: WorkerConfig,
        transfer: TransferConfig,
        heartbeat_ms: int,
        verifier: Verifier,
        cache: CacheConfig | None = None,
        rates: Rates | None = None,
        num_host_blocks: int = 0,
        num_disk_blocks: int = 0,
    ) -> None:
        self.context = WorkerContext(
            worker_id=worker_id,
            ordinal=ordinal,
            epoch=epoch,
            role=role,
            model=model,
            num_blocks=num_blocks,
            num_host_blocks=num_host_blocks,
            num_disk_blocks=num_disk_blocks,
            worker=worker,
            transfer=transfer,
            cache=cache or CacheConfig(),
            verifier=verifier,
        )
        self.directory = Directory()
        self._fenced_jobs = Directory()
        self._meter = RateMeter(rates or Rates())
        self.tiers = TierSide(self.context, self._meter.rates, self._on_loaded)
        load = self.tiers.loads.begin
        self.queue = EngineQueue(self.context, self._admit_prefill, load)
        self.source = SourceSide(self.context, self.queue, self._fenced_jobs, load)
        self.announcer = Announcer(self.context)
        self.local = LocalSide(self.context, self.queue, self._destination_side)
        self.decode = DecodeSide(self.context, self.queue, self.directory, self.local)
        self.destination = DestinationSide(
            self.context,
            self.directory,
            self.decode.admit,
            self.local.stop,
            self._is_short,
            self.announcer.flush,
        )
        self._heartbeat_us = heartbeat_ms * 1000
        self._upkeep_us = min(transfer.retry_ms, transfer.lease_ms // 4) * 1000
        self._next_heartbeat_us = 0
        self._next_upkeep_us = 0
        self._version = 0
        self.peers = Peers(self.context, self.source.aborts, self.destination.aborts)

    # -- the border ----------------------------------------------------------------------------

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        """Take one event at the host's time and return what the host must do, in order."""
        self.context.now_us = now_us
        self._dispatch(event)
        self.decode.release_held()
        self.queue.start_batch()
        self.decode.flush()
        self.tiers.work()
        self.announcer.flush()
        return self.context.take_effects()

    def next_deadline(self) -> int:
        """When the host must call with a Tick at the latest."""
        if self._is_idle:
            return self._next_heartbeat_us
        return min(self._next_heartbeat_us, self._next_upkeep_us)

    def snapshot(self) -> LoadSnapshot:
        """This worker's load now."""
        pool = self.context.memory.pool
        jobs = [job for job in self.source.jobs.values() if job.transfer is not None]
        self._version += 1
        return LoadSnapshot(
            worker_id=self.context.worker_id,
            worker_epoch=self.context.epoch,
            role=self.context.role,
            role_epoch=1,
            version=self._version,
            waiting=len(self.queue.waiting),
            running=len(self.queue.running),
            pending_tokens=self.queue.pending_tokens,
            free_blocks=pool.num_free,
            reserved_blocks=self.destination.table.num_reserved_blocks,
            cached_blocks=pool.num_cached,
            quarantined_blocks=pool.num_quarantined,
            total_blocks=pool.num_blocks,
            inflight_nbytes=sum(j.transfer.credits.inflight_nbytes for j in jobs if j.transfer),
            held_copies=len(jobs),
            source_leases=len(self.source.leases),
            destination_leases=len(self.destination.leases),
            batch_us=max(self.queue.batch_us, self.decode.digest_us),
            rates=self._meter.rates(),
            counters={**self.context.counters, **self.tiers.counters()},
            peers={peer.worker_id: peer.epoch for peer in self.context.peers.values()},
            unproven=self.destination.aborts.unproven(),
            revoked_below=self.context.gate.revoked_below,
            cache_generation=self.context.cache_generation,
            cache_sequence=self.announcer.next_sequence,
            tiers=self.tiers.report(),
        )

    @property
    def counters(self) -> Counter[str]:
        """Named outcomes so far."""
        return self.context.counters

    def _destination_side(self) -> DestinationSide:
        return self.destination

    def _is_short(self) -> bool:
        return self.queue.is_short

    @property
    def _is_idle(self) -> bool:
        return not (
            self.source.jobs
            or self.destination.incoming
            or self.decode.live
            or self.decode.ended
            or self.queue.batch
            or self.tiers.swaps
        )

    # -- dispatch ------------------------------------------------------------------------------

    def _dispatch(self, event: Event) -> None:
        match event:
            case events.Received(envelope=envelope):
                self._on_envelope(envelope)
            case events.BatchDone():
                self._on_batch_done(event)
            case events.LayerReady():
                self._on_layer_ready(event)
            case events.ChunkArrived():
                self.destination.on_arrived(event)
            case events.ChunkMoved():
                self._meter.moved(event)
                if not self.source.on_moved(event):
                    self.destination.on_moved(event)
            case events.ChunkDigested():
                if not self.source.on_digested(event):
                    self.destination.on_digested(event)
            case events.IoQuiesced(reservation_id=reservation_id):
                if not self.source.aborts.on_io_quiesced(reservation_id):
                    self.destination.aborts.on_io_quiesced(reservation_id)
            case events.KVDigested():
                self.decode.on_kv_digested(event)
            case events.BlockCopied():
                self.tiers.on_copied(event)
            case events.TierRecovered():
                self.tiers.on_recovered(event)
            case events.Tick():
                self._on_tick()
            case _:
                raise AssertionError(f"a worker does not take {type(event).__name__}")

    def _on_envelope(self, envelope: Envelope) -> None:
        message = envelope.message
        fence = fence_of(message)
        if fence is not None and not self._fence_holds(fence, envelope):
            self.context.counters["stale_messages"] += 1
            return
        if envelope.sender_id == ROUTER:
            self._on_router_message(message)
        elif self.context.is_live_peer(envelope.sender_id, envelope.sender_epoch):
            self._on_peer_message(message, envelope)
        elif isinstance(message, messages.TransferQuiesced):
            # A life that was given up may say that it is quiet.
            self.destination.aborts.on_source_quiesced(message.fence)
        else:
            self.context.counters["stale_messages"] += 1

    def _fence_holds(self, fence: Fence, envelope: Envelope) -> bool:
        """Fence before kind: this life of this worker is one party, the sender is the other."""
        me = (self.context.worker_id, self.context.epoch)
        source = (fence.source_id, fence.source_epoch)
        destination = (fence.destination_id, fence.destination_epoch)
        if envelope.sender_id == ROUTER:
            return me in (source, destination)
        sender = (envelope.sender_id, envelope.sender_epoch)
        return (me, sender) in ((source, destination), (destination, source))

    def _on_router_message(self, message: Message) -> None:
        match message:
            case messages.Welcome():
                pass  # the host, which said hello, stops repeating it
            case messages.PeerUp(info=info):
                self.peers.on_up(info)
            case messages.PeerDown(worker_id=worker_id, epoch=epoch, ended=ended):
                self.peers.on_down(worker_id, epoch, ended=ended)
            case messages.RevokeRoutes(route_epoch=route_epoch):
                self._on_revoke(route_epoch)
            case messages.Reserve():
                self.destination.on_reserve(message)
            case messages.Prefill(fence=fence):
                self._on_clear_cache(message.grant.cache_generation)
                if fence.colocated and self.decode.knows(fence.transfer_id):
                    self.context.send(ROUTER, messages.Accepted(fence=fence))
                else:
                    (self.local if fence.colocated else self.source).on_prefill(message)
            case messages.Cancel(fence=fence, reason=reason):
                self._on_cancel(fence, reason)
            case messages.Resync():
                self.decode.on_resync(message)
            case messages.DoneAck(fence=fence):
                self.decode.on_done_ack(fence)
            case messages.ClearCache(generation=generation):
                self._on_clear_cache(generation)
            case messages.CacheReplay():
                self.announcer.on_replay(message)
            case _:
                self.context.counters["unexpected_messages"] += 1

    def _on_peer_message(self, message: Message, envelope: Envelope) -> None:
        match message:
            case messages.Present():
                self.destination.rights.on_present(message)
            case messages.Authorized():
                self.source.on_authorized(message)
            case messages.CreditReturn():
                self.source.on_credit(message)
            case messages.SourceRelease(fence=fence):
                self.source.on_release(fence)
            case messages.AbortTransfer(fence=fence, reason=reason):
                self.source.aborts.on_abort(fence, reason)
            case messages.ChunksReady():
                self.destination.on_chunks_ready(message)
            case messages.Seal():
                self.destination.on_seal(message)
            case messages.TransferQuiesced(fence=fence):
                self.destination.aborts.on_source_quiesced(fence)
            case messages.SourceFailed(fence=fence, reason=reason):
                self.destination.aborts.on_source_failed(fence, reason)
            case messages.Renew(fences=fences):
                self._on_renew(fences, envelope)
            case _:
                self.context.counters["unexpected_messages"] += 1

    # -- router messages -----------------------------------------------------------------------

    def _on_revoke(self, route_epoch: int) -> None:
        """What is published decodes on: it is this worker's own by now."""
        if self.context.gate.revoke_below(route_epoch):
            self.source.aborts.on_revoked(route_epoch)
            self.destination.aborts.on_revoked(route_epoch)

    def _on_clear_cache(self, generation: int) -> None:
        """No history of a lower generation is reused here, nor inserted by a copy under way."""
        if self.tiers.clear(generation):
            self.context.counters["cache_clears"] += 1
            self.destination.aborts.on_cache_cleared()

    def _on_cancel(self, fence: Fence, reason: str) -> None:
        if (fence.source_id, fence.source_epoch) == (self.context.worker_id, self.context.epoch):
            self.source.aborts.on_cancel(fence, reason)
        if fence.destination_id != self.context.worker_id:
            return
        if self.destination.aborts.on_cancel(fence, reason) or self.decode.on_cancel(fence, reason):
            return
        self.directory.fence(fence.request_id, fence.generation + 1)
        self.context.send(ROUTER, messages.Aborted(fence=fence, reason=reason))

    def _on_renew(self, fences: tuple[Fence, ...], envelope: Envelope) -> None:
        for fence in fences:
            if not self._fence_holds(fence, envelope):
                self.context.counters["stale_messages"] += 1
            elif fence.source_id == self.context.worker_id:
                self.source.renew(fence)
            else:
                self.destination.table.renew(fence)

    # -- engine --------------------------------------------------------------------------------

    def _on_loaded(self, sequence: Sequence) -> None:
        self.local.on_batch_end(sequence)
        self.source.copies.on_loaded(sequence)

    def _admit_prefill(self, sequence: Sequence) -> bool:
        if self.tiers.loads.begin(sequence):
            return False
        if sequence.key in self.source.jobs:
            return self.source.admit(sequence)
        if sequence.key in self.decode.live:
            return self.decode.readmit(sequence)
        return True

    def _on_layer_ready(self, event: events.LayerReady) -> None:
        batch = self.queue.batch
        if batch is None or batch.batch_id != event.batch_id:
            return
        ends = {f"{item.request_id}.{item.generation}": item.end for item in batch.items}
        self.source.on_layer_ready(event.layer, ends)

    def _on_batch_done(self, event: events.BatchDone) -> None:
        result = event.result
        if self.queue.batch is not None:
            self._meter.step(result, self.queue.batch)
        drawn = {f"{s.request_id}.{s.generation}": s for s in result.sampled}
        for key, sequence in self.queue.end_batch(result.batch_id, result.error).items():
            self.local.on_batch_end(sequence)
            self.decode.on_batch_end(sequence)
            if result.error:
                self._on_engine_error(sequence, result.error)
            elif key in self.source.jobs:
                self.source.on_computed(sequence, drawn.get(key))
            elif key in self.local.sequences:
                self.local.on_computed(sequence, drawn.get(key))
            elif key in self.decode.live:
                self.decode.on_computed(sequence, drawn.get(key))

    def _on_engine_error(self, sequence: Sequence, error: str) -> None:
        self.context.counters["engine_errors"] += 1
        reason = f"engine_error: {error}"
        if sequence.key in self.source.jobs:
            self.source.fail_sequence(sequence, reason)
            self.source.on_computed(sequence, None)
        elif sequence.key in self.local.sequences:
            self.destination.aborts.on_cancel(sequence.fence, reason)
        elif sequence.key in self.decode.live:
            self.decode.fail(sequence, reason)

    # -- time ----------------------------------------------------------------------------------

    def _on_tick(self) -> None:
        now_us = self.context.now_us
        if now_us >= self._next_upkeep_us:
            self._next_upkeep_us = now_us + self._upkeep_us
            self.source.on_tick()
            self.destination.on_tick()
            self.decode.on_tick()
            self.tiers.loads.on_tick()
            self._send_renewals()
        if now_us >= self._next_heartbeat_us:
            self._next_heartbeat_us = now_us + self._heartbeat_us
            self.context.send(ROUTER, messages.Load(snapshot=self.snapshot()))

    def _send_renewals(self) -> None:
        """Leases live on both sides, so both sides renew the other's."""
        by_peer: dict[str, list[Fence]] = defaultdict(list)
        for job in self.source.jobs.values():
            by_peer[job.fence.destination_id].append(job.fence)
        for incoming in self.destination.incoming.values():
            if not incoming.fence.colocated:
                by_peer[incoming.fence.source_id].append(incoming.fence)
        for peer, fences in by_peer.items():
            if peer in self.context.peers:
                self.context.send(peer, messages.Renew(fences=tuple(fences)))
