"""The scheduler's half of the connector: which prompts are handed over, and what is ordered.

It knows nothing of vLLM's types: `RequestView` holds what it needs of a request.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from baton.core.ids import Direction
from baton.core.request import Token
from baton.integrations.vllm.orders import (
    AbortHold,
    AbortLoad,
    Drop,
    Hold,
    Load,
    Order,
    Refused,
    StepOrders,
    Stream,
    Watch,
)
from baton.integrations.vllm.ticket import TICKET_KEY, BadTicket, Ticket, read_ticket
from baton.protocol.signing import Verifier


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """One vLLM request at one moment."""

    vllm_id: str
    token_ids: tuple[int, ...]
    """The prompt."""
    output_token_ids: tuple[int, ...] = ()
    is_stopped: bool = False
    """It ended as it should: by length or by a stop, not aborted or failed."""
    params: Mapping[str, Any] | None = None


class LegState(StrEnum):
    """How far one leg of a handoff is, as the scheduler sees it."""

    WAITING = "waiting"
    """Decode: nothing was allocated yet. Prefill: not finished yet."""
    MOVING = "moving"
    """Decode: blocks are being filled. Prefill: blocks are held for a destination."""
    OVER = "over"
    """What follows is this engine's own business: nothing is loaded or handed over again."""


class Leg:
    """One request that takes part in a handoff."""

    def __init__(self, ticket: Ticket | None, refusal: str, *, is_decode: bool) -> None:
        self.ticket = ticket
        self.refusal = refusal
        self.is_decode = is_decode
        self.state = LegState.WAITING
        self.num_local = 0
        """Tokens that this engine's own prefix cache had when it was looked at last."""
        self.is_streamed = False


class SchedulerSide:
    """Owns a leg by vLLM's request id, from its arrival to its end."""

    def __init__(
        self, verifier: Verifier, block_size: int, *, recomputes: bool, can_send: bool = True
    ) -> None:
        self._verifier = verifier
        self._block_size = block_size
        self._recomputes = recomputes
        self._can_send = can_send
        self._orders: list[Order] = []
        self.legs: dict[str, Leg] = {}

    # -- arrival -------------------------------------------------------------------------------

    def on_new(self, view: RequestView) -> None:
        """A request has come: does it take part in a handoff, and may it?"""
        params = view.params or {}
        is_decode, is_prefill = params.get("do_remote_prefill"), params.get("do_remote_decode")
        if not (is_decode or is_prefill):
            return
        ticket, refusal = self._read(params)
        if refusal:
            self._orders.append(Refused(reason=refusal))
        leg = Leg(ticket, refusal, is_decode=bool(is_decode))
        self.legs[view.vllm_id] = leg
        if ticket is not None and leg.is_decode and ticket.direction is Direction.PULL:
            self._orders.append(Watch(vllm_id=view.vllm_id, ticket=ticket))

    def _read(self, params: Mapping[str, Any]) -> tuple[Ticket | None, str]:
        try:
            return read_ticket(params.get(TICKET_KEY), self._verifier), ""
        except BadTicket as error:
            return None, str(error)

    # -- decode leg ----------------------------------------------------------------------------

    def num_external(self, view: RequestView, num_local: int) -> int | None:
        """Tokens to be loaded behind `num_local`; None while another request loads the same.

        May be asked again and again for one request, and changes nothing that shows outside.
        """
        leg = self.legs.get(view.vllm_id)
        if leg is None:
            return 0
        leg.num_local = num_local
        if not leg.is_decode or leg.state is not LegState.WAITING:
            return 0
        if leg.ticket is None and self._recomputes:
            return 0
        state = self._sibling_state(view.vllm_id, leg)
        if state is LegState.MOVING:
            return None  # its blocks will be found in the prefix cache
        if state is LegState.OVER:
            return 0
        return max(0, len(view.token_ids) - num_local)

    def _sibling_state(self, vllm_id: str, leg: Leg) -> LegState | None:
        """Of another request of the same ticket (n > 1 makes several) that is ahead of this one."""
        if leg.ticket is None:
            return None
        transfer_id = leg.ticket.transfer_id
        states = {
            other.state
            for other_id, other in self.legs.items()
            if other_id != vllm_id
            and other.is_decode
            and other.ticket is not None
            and other.ticket.transfer_id == transfer_id
        }
        return next((s for s in (LegState.MOVING, LegState.OVER) if s in states), None)

    def on_allocated(self, view: RequestView, block_ids: Sequence[int], num_external: int) -> None:
        """vLLM has given blocks to the whole prompt, of which `num_external` tokens are to come."""
        leg = self.legs.get(view.vllm_id)
        if leg is None or not leg.is_decode or leg.state is not LegState.WAITING:
            return
        if num_external <= 0:
            leg.state = LegState.OVER
            self._drop(view.vllm_id, leg)
            return
        leg.state = LegState.MOVING
        first = leg.num_local // self._block_size
        end = -(-len(view.token_ids) // self._block_size)
        self._orders.append(
            Load(
                vllm_id=view.vllm_id,
                ticket=leg.ticket,
                refusal=leg.refusal,
                token_ids=view.token_ids,
                token_start=leg.num_local,
                visible_blocks=tuple(block_ids[:first]),
                block_ids=tuple(block_ids[first:end]),
            )
        )

    def _drop(self, vllm_id: str, leg: Leg) -> None:
        """This request needs nothing of its source; a sibling may be at it."""
        if leg.ticket is not None:
            is_shared = self._sibling_state(vllm_id, leg) is not None
            self._orders.append(Drop(vllm_id=vllm_id, ticket=leg.ticket, is_shared=is_shared))

    def on_received(self, vllm_ids: Sequence[str]) -> None:
        """The workers are done with these loads, published or failed: never load them again."""
        for vllm_id in vllm_ids:
            leg = self.legs.get(vllm_id)
            if leg is not None and leg.is_decode:
                leg.state = LegState.OVER

    # -- prefill leg ---------------------------------------------------------------------------

    def streams(self) -> list[str]:
        """Requests whose rows a destination may want while they are computed."""
        return [
            vllm_id
            for vllm_id, leg in self.legs.items()
            if self._is_pushed(leg) and leg.state is LegState.WAITING
        ]

    def _is_pushed(self, leg: Leg) -> bool:
        is_source = not leg.is_decode and self._can_send
        return is_source and leg.ticket is not None and leg.ticket.direction is Direction.PUSH

    def on_step(self, view: RequestView, block_ids: Sequence[int], start: int, end: int) -> None:
        """The step that begins computes rows `start .. end-1` of a streamed prompt."""
        leg = self.legs[view.vllm_id]
        assert leg.ticket is not None
        num_tokens = len(view.token_ids)
        if start >= num_tokens:
            return
        leg.is_streamed = True
        self._orders.append(
            Stream(
                vllm_id=view.vllm_id,
                ticket=leg.ticket,
                token_ids=view.token_ids,
                block_ids=tuple(block_ids),
                start=start,
                end=min(end, num_tokens),
            )
        )

    def on_preempted(self, vllm_id: str) -> None:
        """vLLM takes a request's blocks away: what was streamed of it is void."""
        leg = self.legs.get(vllm_id)
        if leg is not None and leg.is_streamed and leg.state is LegState.WAITING:
            leg.state, leg.refusal = LegState.OVER, "preempted"
            self._orders.append(AbortHold(vllm_id=vllm_id, reason="preempted", is_awaited=False))

    # -- end -----------------------------------------------------------------------------------

    def on_finished(
        self, view: RequestView, block_ids: Sequence[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """A request is over. True when its blocks stay until the workers report it."""
        leg = self.legs.pop(view.vllm_id, None)
        if leg is None:
            return False, None
        if leg.is_decode:
            self._finish_decode(view.vllm_id, leg)
            return False, None
        refusal = leg.refusal or self._unfit(view, block_ids, leg)
        if refusal:
            is_read = leg.is_streamed and leg.state is LegState.WAITING
            if is_read:
                self._orders.append(
                    AbortHold(vllm_id=view.vllm_id, reason=refusal, is_awaited=True)
                )
            return is_read, {"do_remote_prefill": False, "baton_refusal": refusal}
        assert leg.ticket is not None
        num_blocks = -(-len(view.token_ids) // self._block_size)
        cached = min(leg.num_local, len(view.token_ids) - 1)
        self._orders.append(
            Hold(
                vllm_id=view.vllm_id,
                ticket=leg.ticket,
                token_ids=view.token_ids,
                block_ids=tuple(block_ids[:num_blocks]),
                first_token=Token(index=0, token_id=view.output_token_ids[0]),
                num_cached_tokens=cached,
            )
        )
        return True, {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_prefill_cached_tokens": cached,
            "transfer_id": leg.ticket.transfer_id,
        }

    def _unfit(self, view: RequestView, block_ids: Sequence[int], leg: Leg) -> str:
        """Why a finished prompt cannot be handed over, or ""."""
        if not self._can_send:
            return "not_a_producer"
        if not view.is_stopped:
            return "prefill_aborted"
        if not view.output_token_ids:
            return "no_first_token"
        if len(block_ids) * self._block_size < len(view.token_ids):
            return "blocks_gone"  # preempted in its last step: there is nothing to hand over
        return ""

    def _finish_decode(self, vllm_id: str, leg: Leg) -> None:
        if leg.state is LegState.MOVING:
            self._orders.append(AbortLoad(vllm_id=vllm_id))
        elif leg.state is LegState.WAITING:
            self._drop(vllm_id, leg)

    # -- orders --------------------------------------------------------------------------------

    @property
    def has_orders(self) -> bool:
        """Whether another step is needed to bring orders to the workers."""
        return bool(self._orders)

    def take(self, *, is_idle: bool) -> bytes:
        """The orders of the step that begins."""
        orders, self._orders = self._orders, []
        return msgspec.msgpack.encode(StepOrders(orders=tuple(orders), is_idle=is_idle))
