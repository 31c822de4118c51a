"""The destination: blocks that vLLM gave are filled, checked, published, or quiet again."""

from collections import OrderedDict

from baton.core.capability import abi_digest, covers, regions_of
from baton.core.effects import DigestChunk
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved
from baton.core.ids import Direction, Fence
from baton.core.messages import AbortTransfer, ChunksReady, CreditReturn, Seal, SourceRelease
from baton.integrations.vllm.context import Context, PeerKey, destination_of, unreserved
from baton.integrations.vllm.load_aborts import LoadAborts
from baton.integrations.vllm.loading import Loading, make_grant, make_transfer
from baton.integrations.vllm.messages import ClaimDenied, Claimed
from baton.integrations.vllm.orders import Load, LoadEnded
from baton.integrations.vllm.outputs import Meet, Verified
from baton.nodes.incoming import Incoming
from baton.protocol.capability import Access
from baton.protocol.destination import Arrival
from baton.protocol.directory import PublishOutcome
from baton.protocol.transfer import TransferState

_REMEMBERED = 4096


class LoadSide:
    """Owns every load by transfer id. vLLM hears of each exactly once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.loads: dict[str, Loading] = {}
        self._published: OrderedDict[Fence, None] = OrderedDict()
        """What was published here, for sources that ask again."""
        self.aborts = LoadAborts(context, self.loads)

    # -- begin ---------------------------------------------------------------------------------

    def on_load(self, order: Load) -> None:
        """Begin to fill blocks, or answer at once why not."""
        reason = order.refusal or self._refusal(order)
        if reason:
            self._context.counters[f"refused_{reason}"] += 1
            ended = LoadEnded(vllm_id=order.vllm_id, failed_blocks=order.block_ids, reason=reason)
            self._context.answer(ended)
            return
        assert order.ticket is not None
        self.aborts.on_superseded(order.ticket.fence)
        loading = Loading(order, order.ticket, self._context.now_us)
        self.loads[order.ticket.transfer_id] = loading
        lease_ms = self._context.settings.pair_timeout_ms
        loading.expires_us = self._context.now_us + 1000 * lease_ms
        if loading.source in self._context.peers:
            self._claim(loading)
        else:
            self._meet(loading)

    def _refusal(self, order: Load) -> str:
        if order.ticket is None:
            return "missing"
        fence, context = order.ticket.fence, self._context
        if destination_of(fence) != context.key:
            return "destination_epoch"
        if order.ticket.transfer_id in self.loads:
            return "second"
        if context.fences.is_fenced(fence.request_id, fence.generation):
            return "stale_generation"
        return ""

    def _meet(self, loading: Loading) -> None:
        settings = self._context.settings
        loading.next_retry_us = self._context.now_us + 1000 * settings.retry_ms
        self._context.emit(Meet(member=loading.ticket.source))

    def on_joined(self, key: PeerKey) -> None:
        """A source is met and its memory can be reached: whoever waits for it may claim."""
        for loading in list(self.loads.values()):
            if loading.source == key and loading.incoming is None:
                self._claim(loading)

    def on_newer_life(self, key: PeerKey) -> None:
        """That worker lives under this epoch: whoever waits for an older one waits in vain."""
        for loading in list(self.loads.values()):
            worker_id, epoch = loading.source
            if worker_id == key[0] and epoch != key[1] and loading.incoming is None:
                self.aborts.fail(loading, "source_epoch")

    def on_not_joined(self, key: PeerKey, reason: str) -> None:
        """That source cannot be paired with; the reason is for people, its first word counts."""
        for loading in list(self.loads.values()):
            if loading.source == key and loading.incoming is None:
                self.aborts.fail(loading, reason)

    def _claim(self, loading: Loading) -> None:
        """Fix the grant, spend the right here, and ask the source for the bytes."""
        context, ticket = self._context, loading.ticket
        grant = make_grant(context, loading.order, ticket)
        access = Access(
            fence=ticket.fence,
            route_epoch=grant.route_epoch,
            direction=grant.direction,
            regions=regions_of(*context.key, grant.block_ids),
            nbytes=max(1, grant.num_remote_blocks) * context.inward.bytes_per_block,
            abi_digest=abi_digest(
                context.info.identity,
                context.info.layout,
                context.peers[loading.source].info.layout,
            ),
        )
        denial = context.gate.admit(ticket.capability, access, context.now_us)
        if denial is not None:
            self.aborts.fail(loading, f"capability_{denial}")
            return
        fence = ticket.fence
        context.fences.fence(fence.request_id, fence.generation)
        loading.incoming = Incoming(make_transfer(context, loading.order, grant))
        loading.incoming.capability = ticket.capability
        loading.reserved_us = context.now_us
        self._extend(loading)
        self._send_claim(loading)

    def _send_claim(self, loading: Loading) -> None:
        settings = self._context.settings
        loading.next_retry_us = self._context.now_us + 1000 * settings.retry_ms
        self._context.tell(loading.source, loading.claim())

    def on_claimed(self, message: Claimed) -> None:
        """The source knows of the claim."""
        loading = self.live(message.fence)
        if loading is not None:
            loading.note_claimed(self._context.now_us)
            self._extend(loading)

    def on_denied(self, message: ClaimDenied) -> None:
        """Nothing was moved and nothing will be."""
        loading = self.live(message.fence)
        if loading is not None:
            assert loading.transfer is not None
            loading.transfer.remote_quiesced = True
            self.aborts.fail(loading, message.reason)

    # -- receive -------------------------------------------------------------------------------

    def on_chunks_ready(self, message: ChunksReady) -> None:
        """Pull: these chunks lie in these blocks of the source."""
        loading = self.live(message.fence)
        if loading is None or loading.incoming is None:
            return
        incoming, transfer = loading.incoming, loading.incoming.transfer
        blocks = regions_of(*loading.source, message.source_block_ids)
        if transfer.grant.direction is not Direction.PULL:
            self.aborts.fail(loading, "direction_mismatch")
        elif len(message.source_block_ids) != transfer.num_source_blocks:
            self.aborts.fail(loading, "source_block_count_mismatch")
        elif not covers(loading.ticket.capability.capability.regions, blocks):
            self.aborts.fail(loading, "capability_regions")
        else:
            transfer.source_blocks = message.source_block_ids
            loading.note_claimed(self._context.now_us)
            self._extend(loading)
            incoming.offer(message.chunk_ids)
            self._read_more(incoming)

    def _read_more(self, incoming: Incoming) -> None:
        for read in incoming.next_reads():
            self._context.emit(read)

    def on_moved(self, event: ChunkMoved) -> bool:
        """A read of a pull has ended. False when it is none of this side's."""
        loading = self._by_reservation(event.reservation_id)
        if loading is None:
            return False
        assert loading.incoming is not None
        transfer = loading.incoming.transfer
        if transfer.state is TransferState.ABORTING:
            return True
        if event.error:
            self._context.counters["transfer_errors"] += 1
            self.aborts.fail(loading, f"transfer_failed: {event.error}")
        elif transfer.arrive(event.chunk_id, event.nbytes, event.checksum) is Arrival.NEW:
            loading.note_bytes(self._context.now_us - event.duration_us)
            # A read is summed as it landed in this side's own memory, so it is visible as well.
            self._see(loading, event.chunk_id, event.checksum)
        return True

    def on_arrived(self, event: ChunkArrived) -> None:
        """A chunk of a push is here; it counts for nothing until it was read back."""
        loading = self._by_reservation(event.reservation_id)
        sender = (event.source_id, event.source_epoch)
        if loading is None or loading.source != sender or loading.transfer is None:
            self._context.counters["stale_chunks"] += 1
            return
        transfer = loading.transfer
        if transfer.grant.direction is not Direction.PUSH:
            self._context.counters["stale_chunks"] += 1
            return
        self._extend(loading)
        arrival = transfer.arrive(event.chunk_id, event.nbytes, event.checksum)
        if arrival is Arrival.NEW:
            loading.note_bytes(self._context.now_us)
            spec = transfer.spec(event.chunk_id)
            self._context.emit(
                DigestChunk(
                    reservation_id=event.reservation_id,
                    chunk=spec,
                    local_blocks=transfer.blocks_of(spec),
                    inward=True,
                )
            )
        elif arrival is Arrival.CORRUPT:
            self.aborts.fail(loading, "duplicate_with_other_bytes")
        else:
            self._context.counters[f"{arrival}_chunks"] += 1

    def on_digested(self, event: ChunkDigested) -> bool:
        """A pushed chunk was read back. False when it is none of this side's."""
        loading = self._by_reservation(event.reservation_id)
        if loading is None or loading.transfer is None:
            return False
        if loading.transfer.state is TransferState.TRANSFERRING:
            if event.error:
                self.aborts.fail(loading, f"read_back_failed: {event.error}")
            else:
                self._see(loading, event.chunk_id, event.checksum)
        return True

    def _see(self, loading: Loading, chunk_id: int, checksum: int) -> None:
        assert loading.incoming is not None
        incoming, transfer = loading.incoming, loading.incoming.transfer
        spec = transfer.see(chunk_id, checksum)
        if transfer.all_visible:
            loading.all_visible_us = self._context.now_us
        if transfer.grant.direction is Direction.PULL:
            incoming.window.release(spec.nbytes)
            self._read_more(incoming)
        else:
            credit = CreditReturn(fence=transfer.fence, chunk_ids=(chunk_id,))
            self._context.tell(loading.source, credit)
        self._try_publish(loading)

    # -- publish -------------------------------------------------------------------------------

    def on_seal(self, message: Seal) -> None:
        """The source's manifest; one that was acknowledged before is acknowledged again."""
        loading = self.loads.get(message.fence.transfer_id)
        if loading is None:
            self._answer_unknown(message.fence)
        elif loading.transfer is None or loading.transfer.fence != message.fence:
            self._context.counters["stale_messages"] += 1
        elif loading.transfer.state is not TransferState.ABORTING:
            if loading.transfer.manifest not in (None, message.manifest):
                self.aborts.fail(loading, "second_manifest_differs")
                return
            loading.transfer.manifest = message.manifest
            self._extend(loading)
            self._try_publish(loading)

    def _answer_unknown(self, fence: Fence) -> None:
        if fence in self._published:
            self._context.tell((fence.source_id, fence.source_epoch), SourceRelease(fence=fence))
            return
        self._context.counters["stale_publications"] += 1
        late = AbortTransfer(fence=fence, reason="not_reserved")
        self._context.tell((fence.source_id, fence.source_epoch), late)

    def _try_publish(self, loading: Loading) -> None:
        transfer, context = loading.transfer, self._context
        assert transfer is not None
        live = transfer.state in (TransferState.RESERVED, TransferState.TRANSFERRING)
        if not live or transfer.manifest is None or not transfer.all_visible:
            return
        defect = transfer.defect()
        if defect:
            context.counters[f"refused_{defect}"] += 1
            self.aborts.fail(loading, defect)
            return
        transfer.validate()
        loading.validated_us = context.now_us
        loading.all_visible_us = loading.all_visible_us or context.now_us  # nothing had to move
        order = loading.order
        if order.num_legs > 1:  # the other source ranks' heads must be proven, too
            leg = Verified(transfer_id=transfer.fence.transfer_id, vllm_id=order.vllm_id)
            context.emit(leg)
        else:
            self._publish(loading)

    def publish(self, transfer_id: str) -> None:
        """Every leg of this load is verified."""
        loading = self.loads.get(transfer_id)
        if loading is not None and not loading.abort_reason:
            self._publish(loading)

    def _publish(self, loading: Loading) -> None:
        transfer, context = loading.transfer, self._context
        assert transfer is not None
        outcome = context.fences.publish(transfer.entry())
        if outcome is not PublishOutcome.PUBLISHED:
            self.aborts.fail(loading, f"{outcome}_publication")
            return
        transfer.published()
        context.counters["published_loads"] += 1
        context.counters["load_us"] += context.now_us - loading.began_us
        context.counters["loaded_nbytes"] += sum(spec.nbytes for spec in transfer.plan)
        context.tell(loading.source, SourceRelease(fence=transfer.fence))
        self._published[transfer.fence] = None
        if len(self._published) > _REMEMBERED:
            self._published.popitem(last=False)
        # From here on vLLM owns the entry; its generation stays closed to everything later.
        context.fences.unpublish(transfer.fence.request_id, transfer.fence.generation)
        del self.loads[transfer.fence.transfer_id]
        context.records.keep(loading.record(context))
        context.answer(LoadEnded(vllm_id=loading.order.vllm_id))

    # -- time ----------------------------------------------------------------------------------

    def on_tick(self) -> None:
        """Expire what is not answered and say again what may have been lost."""
        now_us = self._context.now_us
        for loading in list(self.loads.values()):
            if loading.abort_reason:
                self.aborts.repeat(loading)
            elif now_us >= loading.deadline_us:
                self.aborts.fail(loading, "deadline")
            elif now_us >= loading.expires_us:
                is_met = loading.incoming is not None
                self.aborts.fail(loading, "source_silent" if is_met else "source_unreachable")
            elif now_us >= loading.next_retry_us:
                self._repeat(loading)

    def _repeat(self, loading: Loading) -> None:
        loading.num_repeats += 1
        if loading.transfer is None:
            self._meet(loading)
        elif not loading.is_claimed:
            self._send_claim(loading)
        elif loading.transfer.grant.direction is Direction.PUSH:
            seen = loading.transfer.visible_chunks
            settings = self._context.settings
            loading.next_retry_us = self._context.now_us + 1000 * settings.retry_ms
            if seen:
                credit = CreditReturn(fence=loading.transfer.fence, chunk_ids=seen)
                self._context.tell(loading.source, credit)

    def renew(self, fence: Fence) -> None:
        """The source says that this handoff is alive there."""
        loading = self.loads.get(fence.transfer_id)
        if loading is not None and unreserved(fence) == loading.ticket.fence:
            self._extend(loading)

    def _extend(self, loading: Loading) -> None:
        lease_us = 1000 * self._context.settings.lease_ms
        loading.expires_us = max(loading.expires_us, self._context.now_us + lease_us)

    def live(self, fence: Fence) -> Loading | None:
        """The load of exactly this fence, unless it is being aborted."""
        loading = self.loads.get(fence.transfer_id)
        if loading is None or loading.transfer is None or loading.transfer.fence != fence:
            self._context.counters["stale_messages"] += 1
            return None
        return None if loading.abort_reason else loading

    def owns(self, reservation_id: int) -> bool:
        """Whether a load fills its blocks under that reservation."""
        return self._by_reservation(reservation_id) is not None

    def _by_reservation(self, reservation_id: int) -> Loading | None:
        return self.aborts.by_reservation(reservation_id)
