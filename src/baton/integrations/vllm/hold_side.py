"""The source: prompts under way or held, claimed by a destination, let go on proof or fence."""

from baton.core.effects import DigestChunk, MoveChunk
from baton.core.events import ChunkDigested, ChunkMoved
from baton.core.ids import Direction, Fence
from baton.core.messages import ChunksReady, CreditReturn, Seal, SourceFailed, TransferQuiesced
from baton.integrations.vllm.claims import claim_defect
from baton.integrations.vllm.context import Context, PeerKey, destination_of, source_of, unreserved
from baton.integrations.vllm.hold import HeldPrompt
from baton.integrations.vllm.messages import Claim, ClaimDenied, Claimed
from baton.integrations.vllm.orders import AbortHold, Hold, HoldEnded, Stream
from baton.integrations.vllm.ticket import Ticket
from baton.protocol.source import SourceTransfer
from baton.protocol.source_copy import CopyState

MAX_WAITING_CLAIMS = 4096


class HoldSide:
    """Owns every held prompt by transfer id, and claims that came before their prompt."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.holds: dict[str, HeldPrompt] = {}
        self.claims: dict[str, tuple[Claim, int]] = {}
        """Claims of prompts that are not known here yet, and when each is given up."""

    # -- orders of the scheduler ---------------------------------------------------------------

    def on_stream(self, order: Stream) -> None:
        """Rows of a prompt are computed in the step that begins now."""
        held = self._open(order.vllm_id, order.ticket, order.token_ids)
        if held is None:
            return
        held.block_ids = order.block_ids
        held.num_ready = max(held.num_ready, order.start)
        held.step_end = order.end
        self._match(held)
        if held.transfer is not None and held.transfer.state is CopyState.COMPUTING:
            held.transfer.extend(held.block_ids)
            self._mark_all(held, order.start)

    def on_hold(self, order: Hold) -> None:
        """The prompt is complete; from now on vLLM waits for this side."""
        held = self._open(order.vllm_id, order.ticket, order.token_ids)
        if held is None:
            self._context.counters["refused_holds"] += 1
            self._context.answer(HoldEnded(vllm_id=order.vllm_id))
            return
        held.is_awaited = True
        held.block_ids = order.block_ids
        held.first_token = order.first_token
        held.num_cached_tokens = order.num_cached_tokens
        held.num_ready = len(held.token_ids)
        held.step_end = 0
        self._match(held)
        if held.transfer is not None and held.transfer.state is CopyState.COMPUTING:
            held.transfer.extend(held.block_ids)
            held.transfer.mark_complete()
            self._send_ready(held)
            self._try_seal(held)

    def on_abort_order(self, order: AbortHold) -> None:
        """vLLM gives the prompt up, or takes its blocks away."""
        for held in [held for held in self.holds.values() if held.vllm_id == order.vllm_id]:
            held.is_awaited |= order.is_awaited
            self.fail(held, order.reason)
            return
        if order.is_awaited:
            self._context.answer(HoldEnded(vllm_id=order.vllm_id))

    def _open(self, vllm_id: str, ticket: Ticket, token_ids: tuple[int, ...]) -> HeldPrompt | None:
        """The held prompt of a ticket, made if need be. None where it is over or not of here."""
        fence, context = ticket.fence, self._context
        known = self.holds.get(ticket.transfer_id)
        if known is not None:
            return known if known.vllm_id == vllm_id else None
        if source_of(fence) != context.key:
            context.counters["stale_tickets"] += 1
            return None
        if context.fences.is_fenced(fence.request_id, fence.generation):
            context.counters["stale_tickets"] += 1
            return None
        held = HeldPrompt(vllm_id, ticket, token_ids)
        held.deadline_us = context.now_us + 1000 * ticket.deadline_ms
        held.expires_us = held.deadline_us
        self.holds[ticket.transfer_id] = held
        return held

    # -- compute -------------------------------------------------------------------------------

    def on_layer(self, layer: int) -> None:
        """The running step has passed a layer: its rows are final there."""
        for held in self.holds.values():
            transfer = held.transfer
            if held.step_end and transfer is not None and transfer.state is CopyState.COMPUTING:
                transfer.mark_ready(layer, min(held.step_end, len(held.token_ids)))
                self._send_ready(held)

    def on_step_end(self) -> None:
        """The running step is over: all its rows are final."""
        for held in self.holds.values():
            if held.step_end:
                end, held.step_end = held.step_end, 0
                held.num_ready = max(held.num_ready, min(end, len(held.token_ids)))
                if held.transfer is not None and held.transfer.state is CopyState.COMPUTING:
                    self._mark_all(held, held.num_ready)

    def _mark_all(self, held: HeldPrompt, num_tokens: int) -> None:
        assert held.transfer is not None
        for layer in range(self._context.info.layout.num_layers):
            held.transfer.mark_ready(layer, num_tokens)
        self._send_ready(held)

    # -- claims --------------------------------------------------------------------------------

    def on_claim(self, sender: PeerKey, claim: Claim) -> None:
        """A destination names its blocks. Its prompt may be known here, or come later, or never."""
        fence, context = claim.fence, self._context
        if sender != destination_of(fence) or sender not in context.peers:
            context.counters["forged_claims"] += 1
            return
        held = self.holds.get(fence.transfer_id)
        if held is not None and held.claim is not None:
            if held.claim == claim:
                context.counters["duplicate_messages"] += 1
                context.tell(sender, Claimed(fence=fence))
            else:
                self._deny(claim, "second")
            return
        if source_of(fence) != context.key:
            self._deny(claim, "source_epoch")
        elif context.fences.is_fenced(fence.request_id, fence.generation):
            self._deny(claim, "over")
        elif held is None and len(self.claims) >= MAX_WAITING_CLAIMS:
            self._deny(claim, "too_many_claims")
        elif held is None:
            give_up_us = context.now_us + 1000 * context.settings.lease_ms
            self.claims.setdefault(fence.transfer_id, (claim, give_up_us))
            context.tell(sender, Claimed(fence=fence))
        else:
            self._begin(held, claim)

    def on_decline(self, fence: Fence) -> None:
        """Nobody will claim this prompt; its capability was checked by the node."""
        held = self.holds.get(fence.transfer_id)
        self._context.fences.fence(fence.request_id, fence.generation + 1)
        if held is not None and unreserved(held.ticket.fence) == unreserved(fence):
            self._context.counters["declined_holds"] += 1
            self.abort(held, "declined")

    def _match(self, held: HeldPrompt) -> None:
        """Begin a claim that waited for this prompt."""
        waiting = self.claims.pop(held.transfer_id, None)
        if waiting is not None and held.claim is None:
            self._begin(held, waiting[0])

    def _begin(self, held: HeldPrompt, claim: Claim) -> None:
        """Check the grant against the ticket's right, spend it, and let chunks go."""
        context = self._context
        defect = claim_defect(context, held, claim)
        if defect:
            self._deny(claim, defect)
            self.abort(held, defect)
            return
        held.claim = claim
        grant, layout = claim.grant, context.outward
        held.transfer = SourceTransfer(grant, layout, held.block_ids, held.num_ready)
        held.expires_us = context.now_us + 1000 * context.settings.lease_ms
        context.tell(destination_of(claim.fence), Claimed(fence=claim.fence))
        if held.is_complete:
            held.transfer.mark_complete()
        self._send_ready(held)
        self._try_seal(held)

    def _deny(self, claim: Claim, reason: str) -> None:
        self._context.counters[f"denied_{reason}"] += 1
        self._context.tell(
            destination_of(claim.fence), ClaimDenied(fence=claim.fence, reason=reason)
        )

    # -- transfer ------------------------------------------------------------------------------

    def _send_ready(self, held: HeldPrompt) -> None:
        transfer, context = held.transfer, self._context
        if transfer is None or transfer.state not in (CopyState.COMPUTING, CopyState.HELD):
            return
        ready, fence = transfer.take_ready(), transfer.fence
        if not ready:
            return
        if transfer.grant.direction is Direction.PULL:
            self._offer(held, tuple(spec.chunk_id for spec in ready))
        for spec in ready:
            if transfer.grant.direction is Direction.PUSH:
                context.emit(
                    MoveChunk(
                        peer_id=fence.destination_id,
                        peer_epoch=fence.destination_epoch,
                        reservation_id=fence.reservation_id,
                        chunk=spec,
                        write=True,
                        local_blocks=transfer.blocks_of(spec),
                        remote_blocks=transfer.remote_blocks_of(spec),
                    )
                )
            else:
                context.emit(
                    DigestChunk(
                        reservation_id=fence.reservation_id,
                        chunk=spec,
                        local_blocks=transfer.blocks_of(spec),
                        inward=False,
                    )
                )

    def _offer(self, held: HeldPrompt, chunk_ids: tuple[int, ...]) -> None:
        assert held.transfer is not None
        fence, blocks = held.transfer.fence, held.transfer.local_blocks
        ready = ChunksReady(fence=fence, chunk_ids=chunk_ids, source_block_ids=blocks)
        self._context.tell(destination_of(fence), ready)

    def on_summed(self, event: ChunkMoved | ChunkDigested) -> bool:
        """A chunk was written or summed. False when it is none of this side's."""
        held = self._by_reservation(event.reservation_id)
        if held is None or held.transfer is None:
            return False
        if held.transfer.state is not CopyState.COMPUTING:
            return True
        if event.error:
            self._context.counters["transfer_errors"] += 1
            self.fail(held, f"transfer_failed: {event.error}")
            return True
        held.transfer.summed(event.chunk_id, event.checksum)
        self._try_seal(held)
        return True

    def on_credit(self, message: CreditReturn) -> None:
        """The destination sees these chunks: more may go."""
        held = self._current(message.fence)
        if held is not None and held.transfer is not None:
            self.renew(message.fence)
            for chunk_id in message.chunk_ids:
                held.transfer.visible(chunk_id)
            self._send_ready(held)

    def _try_seal(self, held: HeldPrompt) -> None:
        transfer, context = held.transfer, self._context
        if transfer is None or held.first_token is None or not transfer.can_seal:
            return
        if transfer.manifest is None and transfer.state is CopyState.COMPUTING:
            transfer.seal(
                held.token_ids, context.info.identity, held.first_token, held.num_cached_tokens
            )
            self._send_seal(held)

    def _send_seal(self, held: HeldPrompt) -> None:
        transfer, context = held.transfer, self._context
        assert transfer is not None and transfer.manifest is not None
        transfer.next_retry_us = context.now_us + 1000 * context.settings.retry_ms
        seal = Seal(fence=transfer.fence, manifest=transfer.manifest)
        context.tell(destination_of(transfer.fence), seal)

    # -- end -----------------------------------------------------------------------------------

    def on_release(self, fence: Fence) -> None:
        """Published over there under this generation: vLLM may have its blocks back."""
        held = self._current(fence)
        transfer = held.transfer if held is not None else None
        if held is not None and transfer is not None and transfer.state is CopyState.HELD:
            transfer.release()
            self._context.counters["released_holds"] += 1
            self._forget(held)

    def on_abort(self, sender: PeerKey, fence: Fence, reason: str) -> None:
        """The destination gives up; what is not known here is quiet already and stays fenced."""
        if sender != destination_of(fence) or source_of(fence) != self._context.key:
            self._context.counters["stale_messages"] += 1
            return
        self._context.fences.fence(fence.request_id, fence.generation + 1)
        self.claims.pop(fence.transfer_id, None)
        held = self.holds.get(fence.transfer_id)
        if held is None or unreserved(held.ticket.fence) != unreserved(fence):
            self._context.tell(sender, TransferQuiesced(fence=fence))
        elif held.claim is None or held.claim.fence == fence:
            self.abort(held, reason)
            if held.transfer is None:
                self._context.tell(sender, TransferQuiesced(fence=fence))

    def fail(self, held: HeldPrompt, reason: str) -> None:
        """This side gives up: say why, then stop."""
        if held.claim is not None:
            fence = held.claim.fence
            self._context.tell(destination_of(fence), SourceFailed(fence=fence, reason=reason))
        elif held.transfer_id in self.claims:
            self._deny(self.claims.pop(held.transfer_id)[0], reason)
        self.abort(held, reason)

    def abort(self, held: HeldPrompt, reason: str) -> None:
        """Stop reading the blocks; the end comes when nothing reads them any more."""
        fence = held.ticket.fence
        self._context.fences.fence(fence.request_id, fence.generation + 1)
        if held.transfer is None:
            self._context.counters["aborted_holds"] += 1
            self._forget(held)
        elif held.transfer.state in (CopyState.COMPUTING, CopyState.HELD):
            held.transfer.abort(reason)
            self._context.cancel(held.transfer.fence)

    def on_io_quiesced(self, reservation_id: int) -> bool:
        """No byte of that reservation leaves here now. False when it is none of this side's."""
        held = self._by_reservation(reservation_id)
        if held is None or held.transfer is None:
            return False
        held.transfer.finish_abort()
        fence = held.transfer.fence
        self._context.counters["aborted_holds"] += 1
        self._context.tell(destination_of(fence), TransferQuiesced(fence=fence))
        self._forget(held)
        return True

    def _forget(self, held: HeldPrompt) -> None:
        fence = held.ticket.fence
        self._context.fences.fence(fence.request_id, fence.generation + 1)
        del self.holds[held.transfer_id]
        if held.is_awaited:
            self._context.answer(HoldEnded(vllm_id=held.vllm_id))

    # -- time and peers ------------------------------------------------------------------------

    def renew(self, fence: Fence) -> None:
        """The destination says that this handoff is alive there."""
        held = self.holds.get(fence.transfer_id)
        if held is not None and unreserved(fence) == held.ticket.fence:
            lease_us = 1000 * self._context.settings.lease_ms
            renewed_us = min(held.deadline_us, self._context.now_us + lease_us)
            held.expires_us = max(held.expires_us, renewed_us)

    def on_peer_lost(self, key: PeerKey) -> None:
        """That destination is dead: nobody will publish what it claimed."""
        for held in list(self.holds.values()):
            if destination_of(held.ticket.fence) == key:
                self.abort(held, "destination_lost")
        for transfer_id, (claim, _) in list(self.claims.items()):
            if destination_of(claim.fence) == key:
                del self.claims[transfer_id]

    def on_tick(self) -> None:
        """Expire leases and claims, and say again what may have been lost."""
        now_us = self._context.now_us
        for transfer_id, (claim, give_up_us) in list(self.claims.items()):
            if now_us >= give_up_us:
                del self.claims[transfer_id]
                self._deny(claim, "not_held")
        for held in list(self.holds.values()):
            transfer = held.transfer
            is_over = transfer is not None and transfer.state is CopyState.FENCING
            if now_us >= held.expires_us and not is_over:
                self._context.counters["expired_leases"] += 1
                self.fail(held, "source_lease_expired")
            elif transfer is None or transfer.state is not CopyState.HELD:
                continue
            elif now_us >= transfer.next_retry_us:
                self._send_seal(held)

    def _current(self, fence: Fence) -> HeldPrompt | None:
        """The held prompt that was claimed under exactly this fence."""
        held = self.holds.get(fence.transfer_id)
        if held is None or held.claim is None or held.claim.fence != fence:
            self._context.counters["stale_messages"] += 1
            return None
        return held

    def owns(self, reservation_id: int) -> bool:
        """Whether a held prompt was claimed under that reservation."""
        return self._by_reservation(reservation_id) is not None

    def _by_reservation(self, reservation_id: int) -> HeldPrompt | None:
        for held in self.holds.values():
            if held.claim is not None and held.claim.fence.reservation_id == reservation_id:
                return held
        return None
