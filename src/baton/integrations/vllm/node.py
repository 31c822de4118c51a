"""The connector's node: orders, messages and completions in, effects out."""

from collections.abc import Iterator

from baton.core.capability import SignedCapability
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved, IoQuiesced
from baton.core.ids import Fence
from baton.core.layout import KVLayout
from baton.core.messages import (
    AbortTransfer,
    ChunksReady,
    CreditReturn,
    Renew,
    Seal,
    SourceFailed,
    SourceRelease,
    TransferQuiesced,
)
from baton.integrations.vllm.context import (
    Context,
    Peer,
    PeerKey,
    destination_of,
    source_of,
    unreserved,
)
from baton.integrations.vllm.hold_side import HoldSide
from baton.integrations.vllm.info import ConnectorInfo
from baton.integrations.vllm.load_side import LoadSide
from baton.integrations.vllm.messages import (
    Claim,
    ClaimDenied,
    Claimed,
    Decline,
    Message,
    NotPaired,
    Pair,
    Paired,
    Status,
)
from baton.integrations.vllm.orders import (
    AbortHold,
    AbortLoad,
    Drop,
    Hold,
    Load,
    Order,
    Refused,
    Stream,
    Watch,
)
from baton.integrations.vllm.outputs import Join, Meet, Output, Part, Tell
from baton.integrations.vllm.settings import Settings
from baton.integrations.vllm.support import pairing_defect
from baton.integrations.vllm.ticket import Ticket
from baton.protocol.capability import signed_bytes
from baton.protocol.signing import Verifier


class Node:
    """One rank's connector towards one rank of its peers.

    Every call takes the time and returns what the host must do."""

    def __init__(
        self,
        info: ConnectorInfo,
        settings: Settings,
        verifier: Verifier,
        reservations: Iterator[int],
        *,
        inward: KVLayout | None = None,
        outward: KVLayout | None = None,
    ) -> None:
        self._context = Context(
            info, settings, verifier, reservations, inward=inward, outward=outward
        )
        self._verifier = verifier
        self.records = self._context.records
        self.holds = HoldSide(self._context)
        self.loads = LoadSide(self._context)
        self._watched: dict[str, Ticket] = {}
        """Tickets of prompts that wait for room here, by vLLM's request id."""
        self._drops: dict[str, tuple[Ticket, int]] = {}
        """Declines that wait until their source is met, and when they are given up."""

    # -- from vLLM -----------------------------------------------------------------------------

    def on_orders(self, orders: tuple[Order, ...], now_us: int) -> list[Output]:
        """What the scheduler's side asks for, in its order."""
        self._context.now_us = now_us
        for order in orders:
            self._on_order(order)
        return self._context.take()

    def _on_order(self, order: Order) -> None:
        match order:
            case Refused():
                self._context.counters[f"refused_ticket_{order.reason}"] += 1
            case Watch():
                self._watched[order.vllm_id] = order.ticket
                self._approach(order.ticket)
            case Load():
                self._watched.pop(order.vllm_id, None)
                self.loads.on_load(order)
            case AbortLoad():
                self.loads.aborts.on_order(order.vllm_id)
            case Drop():
                self._watched.pop(order.vllm_id, None)
                if not order.is_shared:
                    self._drop(order.ticket)
            case Stream():
                self.holds.on_stream(order)
            case Hold():
                self.holds.on_hold(order)
            case AbortHold():
                self.holds.on_abort_order(order)

    def _approach(self, ticket: Ticket) -> None:
        """Meet a source before its bytes are wanted."""
        if source_of(ticket.fence) not in self._context.peers:
            self._context.emit(Meet(member=ticket.source))

    def _drop(self, ticket: Ticket) -> None:
        if source_of(ticket.fence) in self._context.peers:
            decline = Decline(fence=ticket.fence, capability=ticket.capability)
            self._context.tell(source_of(ticket.fence), decline)
            return
        give_up_us = self._context.now_us + 1000 * self._context.settings.pair_timeout_ms
        self._drops[ticket.transfer_id] = (ticket, give_up_us)
        self._context.emit(Meet(member=ticket.source))

    def on_sibling_lost(self, order: Load, reason: str, now_us: int) -> list[Output]:
        """Another leg of the same load is lost; the source of this one may not be met yet."""
        self._context.now_us = now_us
        self.loads.aborts.on_order(order.vllm_id, reason)
        if order.ticket is not None and source_of(order.ticket.fence) not in self._context.peers:
            self._drop(order.ticket)
        return self._context.take()

    def on_all_verified(self, transfer_id: str, now_us: int) -> list[Output]:
        """Every leg of that load has passed every check."""
        self._context.now_us = now_us
        self.loads.publish(transfer_id)
        return self._context.take()

    def count(self, name: str) -> None:
        """Count what came to this leg's rank and is nobody's."""
        self._context.counters[name] += 1

    def refuse(self, life: PeerKey, reason: str) -> Tell:
        """What a peer is told that cannot be paired with, whether or not it is known."""
        self._context.counters["refused_pairs"] += 1
        return Tell(worker_id=life[0], epoch=life[1], message=NotPaired(reason=reason))

    def owns(self, reservation_id: int) -> bool:
        """Whether a transfer of this leg runs under that reservation."""
        return self.holds.owns(reservation_id) or self.loads.owns(reservation_id)

    def on_layer(self, layer: int, now_us: int) -> list[Output]:
        """The running step has written a layer."""
        self._context.now_us = now_us
        self.holds.on_layer(layer)
        return self._context.take()

    def on_step_end(self, now_us: int) -> list[Output]:
        """The running step has written every layer."""
        self._context.now_us = now_us
        self.holds.on_step_end()
        return self._context.take()

    # -- from peers ----------------------------------------------------------------------------

    def on_message(self, sender: PeerKey, message: Message, now_us: int) -> list[Output]:
        """A message of a life of a peer; what it says is judged by its fence first."""
        context = self._context
        context.now_us = now_us
        context.hear(sender)
        match message:
            case Pair() | Paired():
                self._on_hello(sender, message)
            case NotPaired():
                self.loads.on_not_joined(sender, message.reason)
            case Claim():
                self.holds.on_claim(sender, message)
            case Decline():
                self._on_decline(message.fence, message.capability)
            case Renew():
                self._on_renew(sender, message)
            case Claimed() | ClaimDenied() | ChunksReady() | Seal() | SourceFailed():
                self._from_source(sender, message)
            case TransferQuiesced():
                self._from_source(sender, message)
            case CreditReturn() | SourceRelease() | AbortTransfer():
                self._from_destination(sender, message)
            case _:
                context.counters["unexpected_messages"] += 1
        return context.take()

    def _from_source(
        self,
        sender: PeerKey,
        message: Claimed | ClaimDenied | ChunksReady | Seal | SourceFailed | TransferQuiesced,
    ) -> None:
        if sender != source_of(message.fence) or destination_of(message.fence) != self._context.key:
            self._context.counters["stale_messages"] += 1
            return
        loads = self.loads
        match message:
            case Claimed():
                loads.on_claimed(message)
            case ClaimDenied():
                loads.on_denied(message)
            case ChunksReady():
                loads.on_chunks_ready(message)
            case Seal():
                loads.on_seal(message)
            case SourceFailed():
                loading = loads.live(message.fence)
                if loading is not None:
                    loads.aborts.on_source_failed(loading, message.reason)
            case TransferQuiesced():
                loads.aborts.on_source_quiesced(message.fence)

    def _from_destination(
        self, sender: PeerKey, message: CreditReturn | SourceRelease | AbortTransfer
    ) -> None:
        if sender != destination_of(message.fence) or source_of(message.fence) != self._context.key:
            self._context.counters["stale_messages"] += 1
            return
        match message:
            case CreditReturn():
                self.holds.on_credit(message)
            case SourceRelease():
                self.holds.on_release(message.fence)
            case AbortTransfer():
                self.holds.on_abort(sender, message.fence, message.reason)

    def _on_hello(self, sender: PeerKey, hello: Pair | Paired) -> None:
        member = hello.info.member
        if (member.worker_id, member.epoch) != sender:
            self._context.counters["forged_hellos"] += 1
            return
        if sender in self._context.peers:
            if isinstance(hello, Pair):
                self._context.emit(Join(hello=hello))
            return
        mine, theirs = self._context.info.facts, hello.info.facts
        is_source = isinstance(hello, Pair)
        defect = pairing_defect(mine, theirs) if is_source else pairing_defect(theirs, mine)
        if not defect and hello.info.layout != self._context.info.layout_at(theirs.tp_size):
            defect = "layout: the two caches differ in shape; serve the same checkpoint alike"
        if not defect and hello.info.identity.digest != self._context.info.identity.digest:
            defect = (
                f"identity: {self._context.info.identity.model!r} here and "
                f"{hello.info.identity.model!r} there differ in content; serve the same checkpoint"
            )
        if defect and is_source:
            self._context.emit(self.refuse(sender, defect))
        elif defect:
            self.loads.on_not_joined(sender, defect)
        else:
            self._context.emit(Join(hello=hello))

    def on_joined(self, hello: Pair | Paired, own: Paired | None, now_us: int) -> list[Output]:
        """The data plane reaches that peer; `own` is what it is answered, where it asked."""
        context = self._context
        context.now_us = now_us
        key = (hello.info.member.worker_id, hello.info.member.epoch)
        for other in [k for k in context.peers if k[0] == key[0] and k[1] != key[1]]:
            self._lose(other)
        self.loads.on_newer_life(key)
        if key not in context.peers:
            context.peers[key] = Peer(hello)
            context.hear(key)
        if own is not None:
            context.tell(key, own)
        self.loads.on_joined(key)
        for transfer_id, (ticket, _) in list(self._drops.items()):
            if source_of(ticket.fence) == key:
                del self._drops[transfer_id]
                self._drop(ticket)
        return context.take()

    def on_not_joined(self, key: PeerKey, reason: str, now_us: int) -> list[Output]:
        """That peer cannot be reached, or not any more under this epoch."""
        self._context.now_us = now_us
        self.loads.on_not_joined(key, reason)
        for transfer_id, (ticket, _) in list(self._drops.items()):
            if source_of(ticket.fence) == key:
                del self._drops[transfer_id]
        return self._context.take()

    def _on_decline(self, fence: Fence, capability: SignedCapability) -> None:
        """Whoever holds the right may give it up: it is checked, and not spent."""
        signed = capability.capability
        genuine = self._verifier.verify(signed.issuer, signed_bytes(signed), capability.signature)
        if genuine and unreserved(signed.fence) == unreserved(fence):
            self.holds.on_decline(fence)
        else:
            self._context.counters["forged_declines"] += 1

    def _on_renew(self, sender: PeerKey, message: Renew) -> None:
        for fence in message.fences:
            if sender == destination_of(fence):
                self.holds.renew(fence)
            elif sender == source_of(fence):
                self.loads.renew(fence)

    # -- from the data plane -------------------------------------------------------------------

    def on_event(
        self, event: ChunkMoved | ChunkDigested | ChunkArrived | IoQuiesced, now_us: int
    ) -> list[Output]:
        """An order of the data plane has ended, or bytes came in."""
        self._context.now_us = now_us
        match event:
            case ChunkMoved():
                known = self.holds.on_summed(event) or self.loads.on_moved(event)
            case ChunkDigested():
                known = self.holds.on_summed(event) or self.loads.on_digested(event)
            case ChunkArrived():
                self.loads.on_arrived(event)
                known = True
            case IoQuiesced():
                known = self.holds.on_io_quiesced(event.reservation_id)
                known = known or self.loads.aborts.on_io_quiesced(event.reservation_id)
        if not known:
            self._context.counters["stale_completions"] += 1
        return self._context.take()

    # -- time and peers ------------------------------------------------------------------------

    def on_peer_lost(self, key: PeerKey, now_us: int) -> list[Output]:
        """The process of that life is known to be dead."""
        self._context.now_us = now_us
        self._lose(key)
        return self._context.take()

    def _lose(self, key: PeerKey) -> None:
        if self._context.peers.pop(key, None) is None:
            return
        self._context.counters["lost_peers"] += 1
        self._context.emit(Part(worker_id=key[0], epoch=key[1]))
        self.loads.aborts.on_peer_lost(key)
        self.holds.on_peer_lost(key)

    def on_tick(self, now_us: int) -> list[Output]:
        """Time goes by."""
        context = self._context
        context.now_us = now_us
        self.holds.on_tick()
        self.loads.on_tick()
        for transfer_id, (_, give_up_us) in list(self._drops.items()):
            if now_us >= give_up_us:
                del self._drops[transfer_id]
        self._renew_all()
        return context.take()

    def _renew_all(self) -> None:
        """Tell every peer, a few times in a lease, which of its handoffs are alive here."""
        context = self._context
        every_us = 1000 * context.settings.lease_ms // 4
        now_us = context.now_us
        due = {key for key, peer in context.peers.items() if now_us - peer.told_us >= every_us}
        fences: dict[PeerKey, list[Fence]] = {}
        for loading in self.loads.loads.values():
            if not loading.abort_reason:
                fence = loading.transfer.fence if loading.transfer else loading.ticket.fence
                fences.setdefault(loading.source, []).append(fence)
        for ticket in self._watched.values():
            fences.setdefault(source_of(ticket.fence), []).append(ticket.fence)
        for held in self.holds.holds.values():
            if held.claim is not None:
                fences.setdefault(destination_of(held.claim.fence), []).append(held.claim.fence)
        for key in due & fences.keys():
            context.peers[key].told_us = context.now_us
            context.tell(key, Renew(fences=tuple(fences[key])))

    @property
    def is_idle(self) -> bool:
        """Nothing is open here."""
        return not (self.holds.holds or self.holds.claims or self.loads.loads or self._drops)

    def status(self) -> Status:
        """What is held at this moment."""
        holds, loads = self.holds.holds.values(), self.loads.loads.values()
        return Status(
            info=self._context.info,
            held_blocks=sum(len(held.block_ids) for held in holds),
            loading_blocks=sum(len(loading.order.block_ids) for loading in loads),
            open_holds=len(holds),
            open_loads=len(loads),
            waiting_claims=len(self.holds.claims),
            open_tickets=len(self._watched) + len(self._drops),
            counters=dict(self._context.counters),
        )
