"""One rank's connector: a node for each rank of a peer that its heads go to or come from.

A leg is the whole transaction between two ranks: its own grant, reservation, chunks, checksums and
manifest. Between servers of one tensor-parallel size each handoff has one leg a rank. Otherwise
the legs of a load are published together, once every one of them is verified, and fail together.
"""

import itertools
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved, IoQuiesced
from baton.errors import RemapRefused
from baton.integrations.vllm.cut import MAX_TP_SIZE, Cuts, PeerRank, Piece
from baton.integrations.vllm.info import ConnectorInfo
from baton.integrations.vllm.legs_status import records_of, status_of
from baton.integrations.vllm.messages import (
    Decline,
    HandoffQuestion,
    HandoffRecords,
    Message,
    Pair,
    Paired,
    Status,
)
from baton.integrations.vllm.node import Node
from baton.integrations.vllm.orders import (
    AbortHold,
    AbortLoad,
    Drop,
    Hold,
    HoldEnded,
    Load,
    LoadEnded,
    Order,
    Refused,
    Stream,
    Watch,
)
from baton.integrations.vllm.outputs import Answer, LegLost, Output, Verified
from baton.integrations.vllm.settings import Settings
from baton.integrations.vllm.ticket import Ticket
from baton.protocol.signing import Verifier

_REMEMBERED = 4096

RankKey = tuple[str, int, int]
"""A worker, its epoch, and one of its ranks."""


class LegOutput(NamedTuple):
    """What the host must do, and towards which rank."""

    leg: PeerRank
    output: Output


class _Load:
    """A load of this rank with all of its legs."""

    def __init__(self, order: Load, legs: list[PeerRank]) -> None:
        self.order = order
        self.legs = legs
        self.open = set(legs)
        """Legs that have not ended."""
        self.unverified = set(legs)
        self.reason = ""


class Legs:
    """Every call takes the time and returns what the host must do, towards which rank."""

    def __init__(
        self,
        info: ConnectorInfo,
        settings: Settings,
        verifier: Verifier,
        reservation_base: int = 0,
    ) -> None:
        self.info = info
        self._settings = settings
        self._verifier = verifier
        self._reservations = itertools.count(reservation_base + 1)
        self._cuts: dict[tuple[int, int], Cuts] = {}
        self._nodes: dict[PeerRank, Node] = {}
        self._loads: dict[str, _Load] = {}
        self._awaited: dict[str, set[PeerRank]] = {}
        """Legs that still have to say that they read a prompt no more, by vLLM's request id."""
        self._declines: deque[Decline] = deque(maxlen=_REMEMBERED)
        """A gateway's, for legs that nobody has met yet."""
        self._out: list[LegOutput] = []
        self._now_us = 0
        self._own = PeerRank(info.facts.tp_size, info.rank)
        self._node(self._own)

    # -- which legs ----------------------------------------------------------------------------

    def _cuts_of(self, source_tp: int, target_tp: int) -> Cuts:
        """Raises RemapRefused where the heads cannot be cut so."""
        key = (source_tp, target_tp)
        if key not in self._cuts:
            if not 1 <= min(key) <= max(key) <= MAX_TP_SIZE:
                raise RemapRefused("tp_size", f"tp_size of {key}; use 1 to {MAX_TP_SIZE}")
            facts = self.info.facts
            self._cuts[key] = Cuts(self.info.layout, facts.num_kv_heads, *key)
        return self._cuts[key]

    def _sources(self, ticket: Ticket) -> list[PeerRank]:
        """Ranks from which this one's heads come."""
        tp_size = len(ticket.source.endpoints)
        cuts = self._cuts_of(tp_size, self._own.tp_size)
        return [PeerRank(tp_size, rank) for rank in cuts.sources_of(self._own.rank)]

    def _takers(self, ticket: Ticket) -> list[PeerRank]:
        """Ranks that get heads of this one."""
        tp_size = len(ticket.destination.endpoints)
        cuts = self._cuts_of(self._own.tp_size, tp_size)
        return [PeerRank(tp_size, rank) for rank in cuts.takers_of(self._own.rank)]

    def pieces(self, leg: PeerRank, *, is_source: bool) -> tuple[Piece, ...]:
        """What of each block goes over a leg, with this side as its source or destination."""
        ours, theirs = self._own, leg
        source, target = (ours, theirs) if is_source else (theirs, ours)
        cuts = self._cuts_of(source.tp_size, target.tp_size)
        return cuts.between[source.rank, target.rank].pieces

    def _node(self, leg: PeerRank) -> Node:
        """Of a leg, made at its first use. Raises RemapRefused for a leg that cannot be."""
        node = self._nodes.get(leg)
        if node is not None:
            return node
        own, layouts = self._own, []
        for source, target in ((leg, own), (own, leg)):
            cuts = self._cuts_of(source.tp_size, target.tp_size)
            pair = (source.rank, target.rank)
            layouts.append(cuts.layout_of(*pair) if pair in cuts.between else None)
        inward, outward = layouts
        node = Node(
            self.info,
            self._settings,
            self._verifier,
            self._reservations,
            inward=inward,
            outward=outward,
        )
        self._nodes[leg] = node
        for decline in self._declines:
            self._collect(leg, node.on_message(("", 0), decline, self._now_us))
        return node

    # -- from vLLM -----------------------------------------------------------------------------

    def on_orders(self, orders: tuple[Order, ...], now_us: int) -> list[LegOutput]:
        """What the scheduler's side asks for, in its order."""
        self._now_us = now_us
        for order in orders:
            self._on_order(order)
        return self._take()

    def _on_order(self, order: Order) -> None:
        match order:
            case Refused():
                self._order(self._own, order)
            case Load():
                self._on_load(order)
            case Watch() | Drop():
                for leg in self._known(self._sources, order.ticket):
                    self._order(leg, order)
            case AbortLoad():
                for leg in list(self._nodes):
                    self._order(leg, order)
            case Stream():
                for leg in self._known(self._takers, order.ticket):
                    self._order(leg, order)
            case Hold():
                self._order_awaited(order, self._known(self._takers, order.ticket))
            case AbortHold() if order.is_awaited:
                self._order_awaited(order, list(self._nodes))
            case AbortHold():
                for leg in list(self._nodes):
                    self._order(leg, order)

    def _known(self, choose: Callable[[Ticket], list[PeerRank]], ticket: Ticket) -> list[PeerRank]:
        """Legs of a ticket; none where its members' ranks cannot share the heads."""
        try:
            return choose(ticket)
        except RemapRefused as refused:
            self._nodes[self._own].count(f"refused_{refused.name}")
            return []

    def _order(self, leg: PeerRank, order: Order) -> None:
        self._collect(leg, self._node(leg).on_orders((order,), self._now_us))

    def _order_awaited(self, order: Hold | AbortHold, legs: list[PeerRank]) -> None:
        """Each leg answers once; vLLM is answered when all have."""
        if not legs:  # a replica of heads that others send: nobody reads the blocks here
            self._emit(self._own, Answer(ended=HoldEnded(vllm_id=order.vllm_id)))
            return
        self._awaited[order.vllm_id] = set(legs)
        for leg in legs:
            self._order(leg, order)

    def _on_load(self, order: Load) -> None:
        legs = [self._own] if order.ticket is None else self._known(self._sources, order.ticket)
        if not legs:
            ended = LoadEnded(
                vllm_id=order.vllm_id, failed_blocks=order.block_ids, reason="uneven_heads"
            )
            self._emit(self._own, Answer(ended=ended))
            return
        order = replace(order, num_legs=len(legs))
        self._loads[order.vllm_id] = _Load(order, legs)
        begun = [(leg, self._node(leg).on_orders((order,), self._now_us)) for leg in legs]
        for leg, outputs in begun:
            self._collect(leg, outputs)

    def on_layer(self, layer: int, now_us: int) -> list[LegOutput]:
        """The running step has written a layer."""
        self._now_us = now_us
        for leg, node in self._nodes.items():
            self._collect(leg, node.on_layer(layer, now_us))
        return self._take()

    def on_step_end(self, now_us: int) -> list[LegOutput]:
        """The running step has written every layer."""
        self._now_us = now_us
        for leg, node in self._nodes.items():
            self._collect(leg, node.on_step_end(now_us))
        return self._take()

    # -- from peers ----------------------------------------------------------------------------

    def on_message(
        self, sender: RankKey, tp_size: int, message: Message, now_us: int
    ) -> list[LegOutput]:
        """A message of a rank of a life of a peer, or a gateway's Decline, of epoch 0."""
        self._now_us = now_us
        worker_id, epoch, rank = sender
        leg, life = PeerRank(tp_size, rank), (worker_id, epoch)
        if isinstance(message, Decline) and not epoch:
            self._declines.append(message)
            for each, node in self._nodes.items():
                self._collect(each, node.on_message(life, message, now_us))
        elif isinstance(message, Pair | Paired) and not _is_of(message.info, leg):
            self._nodes[self._own].count("forged_hellos")
        elif leg in self._nodes:
            self._collect(leg, self._nodes[leg].on_message(life, message, now_us))
        elif isinstance(message, Pair):
            self._on_first(leg, life, message)
        else:
            self._nodes[self._own].count("stale_messages")
        return self._take()

    def _on_first(self, leg: PeerRank, life: tuple[str, int], message: Pair) -> None:
        """The first rank of its kind that this one hears of."""
        try:
            node = self._node(leg)
        except RemapRefused as refused:
            self._emit(leg, self._nodes[self._own].refuse(life, f"tp_size: {refused}"))
            return
        self._collect(leg, node.on_message(life, message, self._now_us))

    def on_joined(
        self, leg: PeerRank, hello: Pair | Paired, own: Paired | None, now_us: int
    ) -> list[LegOutput]:
        """The data plane reaches that rank; `own` is what it is answered, where it asked."""
        self._now_us = now_us
        self._collect(leg, self._node(leg).on_joined(hello, own, now_us))
        return self._take()

    def on_not_joined(
        self, leg: PeerRank, key: tuple[str, int], reason: str, now_us: int
    ) -> list[LegOutput]:
        """That rank cannot be reached, or not any more under this epoch."""
        self._now_us = now_us
        self._collect(leg, self._node(leg).on_not_joined(key, reason, now_us))
        return self._take()

    def on_peer_lost(self, key: RankKey, now_us: int) -> list[LegOutput]:
        """The process of that rank of that life is known to be dead."""
        self._now_us = now_us
        for leg, node in self._nodes.items():
            if leg.rank == key[2]:
                self._collect(leg, node.on_peer_lost(key[:2], now_us))
        return self._take()

    # -- from the data plane -------------------------------------------------------------------

    def on_event(
        self,
        event: ChunkMoved | ChunkDigested | ChunkArrived | IoQuiesced,
        now_us: int,
        from_rank: int | None = None,
    ) -> list[LegOutput]:
        """An order of the data plane has ended, or bytes came in from that rank."""
        self._now_us = now_us
        owners = (
            (leg, node)
            for leg, node in self._nodes.items()
            if node.owns(event.reservation_id) and from_rank in (None, leg.rank)
        )
        leg, node = next(owners, (self._own, self._nodes[self._own]))
        self._collect(leg, node.on_event(event, now_us))
        return self._take()

    # -- time ----------------------------------------------------------------------------------

    def on_tick(self, now_us: int) -> list[LegOutput]:
        """Time goes by."""
        self._now_us = now_us
        for leg, node in list(self._nodes.items()):
            self._collect(leg, node.on_tick(now_us))
        return self._take()

    @property
    def is_idle(self) -> bool:
        """Nothing is open here."""
        return all(node.is_idle for node in self._nodes.values())

    def status(self) -> Status:
        """What is held now; what several legs hold is held once. Counters count each leg."""
        return status_of(self.info, self._nodes.values())

    def answer(self, question: HandoffQuestion, host: str, now_us: int) -> HandoffRecords:
        """What all legs remember of the loads of this rank that it asks for."""
        return records_of(self._nodes.values(), question, host, now_us)

    # -- outputs -------------------------------------------------------------------------------

    def _emit(self, leg: PeerRank, output: Output) -> None:
        self._out.append(LegOutput(leg, output))

    def _take(self) -> list[LegOutput]:
        taken, self._out = self._out, []
        return taken

    def _collect(self, leg: PeerRank, outputs: list[Output]) -> None:
        """Pass on what the host must do; legs of one load or hold end together."""
        for output in outputs:
            match output:
                case Verified():
                    self._on_verified(leg, output)
                case LegLost():
                    self._lose_others(leg, output.vllm_id, output.reason)
                case Answer(ended=HoldEnded()):
                    self._on_hold_ended(leg, output.ended.vllm_id)
                case Answer(ended=LoadEnded() as ended):
                    self._on_load_ended(leg, ended)
                case _:
                    self._emit(leg, output)

    def _on_verified(self, leg: PeerRank, verified: Verified) -> None:
        load = self._loads[verified.vllm_id]
        load.unverified.discard(leg)
        if not load.unverified and not load.reason:
            for each in load.legs:
                outputs = self._nodes[each].on_all_verified(verified.transfer_id, self._now_us)
                self._collect(each, outputs)

    def _lose_others(self, leg: PeerRank, vllm_id: str, reason: str) -> None:
        load = self._loads[vllm_id]
        if load.reason:
            return
        load.reason = reason
        for other in load.legs:
            if other != leg and other in load.open:
                node = self._nodes[other]
                self._collect(other, node.on_sibling_lost(load.order, reason, self._now_us))

    def _on_hold_ended(self, leg: PeerRank, vllm_id: str) -> None:
        waiting = self._awaited.get(vllm_id, set())
        waiting.discard(leg)
        if not waiting and self._awaited.pop(vllm_id, None) is not None:
            self._emit(leg, Answer(ended=HoldEnded(vllm_id=vllm_id)))

    def _on_load_ended(self, leg: PeerRank, ended: LoadEnded) -> None:
        load = self._loads[ended.vllm_id]
        load.open.discard(leg)
        if ended.reason:
            self._lose_others(leg, ended.vllm_id, ended.reason)
        if load.open or self._loads.pop(ended.vllm_id, None) is None:
            return
        failed = load.order.block_ids if load.reason else ()
        whole = LoadEnded(vllm_id=ended.vllm_id, failed_blocks=failed, reason=load.reason)
        self._emit(leg, Answer(ended=whole))


def _is_of(info: ConnectorInfo, leg: PeerRank) -> bool:
    """Whether a peer says of itself what its envelope says."""
    said = (info.facts.tp_size, info.rank, len(info.member.endpoints))
    return said == (leg.tp_size, leg.rank, leg.tp_size) and 0 <= leg.rank < leg.tp_size
