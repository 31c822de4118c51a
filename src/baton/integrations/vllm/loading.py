"""One load at its destination: what vLLM asked for, and the transfer once its source is met."""

from msgspec.structs import replace

from baton.core.capability import SignedCapability
from baton.core.ids import Direction, Schedule
from baton.core.manifest import Grant, choose_geometry
from baton.core.request import Request, SamplingParams
from baton.core.sets import TransferLedger
from baton.integrations.vllm.context import Context, PeerKey, source_of
from baton.integrations.vllm.messages import Claim
from baton.integrations.vllm.orders import Load
from baton.integrations.vllm.records import HandoffRecord
from baton.integrations.vllm.ticket import Ticket
from baton.nodes.incoming import Incoming
from baton.protocol.destination import DestinationTransfer

_MAX_TOKEN_ID = 1 << 31
_STEP_BLOCKS = 256


class Loading:
    """From vLLM's order until the blocks are published, or quiet."""

    def __init__(self, order: Load, ticket: Ticket, now_us: int) -> None:
        self.order = order
        self.ticket = ticket
        self.incoming: Incoming | None = None
        """None until the source is met."""
        self.is_claimed = False
        """The source has answered the claim."""
        self.next_retry_us = 0
        self.began_us = now_us
        self.reserved_us = self.claimed_us = self.first_byte_us = 0
        self.all_visible_us = self.validated_us = 0
        """When each step was reached; 0 before."""
        self.num_repeats = 0
        self.deadline_us = now_us + 1000 * ticket.deadline_ms
        self.expires_us = 0
        self.abort_reason = ""
        self.quiet_us = 0
        """When a source that says nothing has certainly stopped by itself."""

    @property
    def source(self) -> PeerKey:
        """The life that sends."""
        return source_of(self.ticket.fence)

    @property
    def transfer(self) -> DestinationTransfer | None:
        """The transaction, once there is one."""
        return self.incoming.transfer if self.incoming is not None else None

    def claim(self) -> Claim:
        """What the source is asked for."""
        assert self.incoming is not None
        capability: SignedCapability = self.ticket.capability
        grant = self.incoming.transfer.grant
        return Claim(fence=grant.fence, grant=grant, capability=capability)

    def note_claimed(self, now_us: int) -> None:
        """The source has answered; what it says again changes nothing."""
        self.is_claimed = True
        self.claimed_us = self.claimed_us or now_us

    def note_bytes(self, at_us: int) -> None:
        """Bytes have come, or began to come then."""
        self.first_byte_us = self.first_byte_us or at_us

    def record(self, context: Context) -> HandoffRecord:
        """What is remembered of it, now that it has ended."""
        transfer, order = self.transfer, self.order
        ledger = transfer.ledger if transfer is not None else TransferLedger()
        return HandoffRecord(
            fence=transfer.fence if transfer is not None else self.ticket.fence,
            rank=context.info.rank,
            num_legs=order.num_legs,
            asked_us=self.began_us,
            reserved_us=self.reserved_us,
            claimed_us=self.claimed_us,
            first_byte_us=self.first_byte_us,
            all_visible_us=self.all_visible_us,
            validated_us=self.validated_us,
            ended_us=context.now_us,
            reason=self.abort_reason,
            num_tokens=len(order.token_ids),
            visible_tokens=order.token_start,
            num_blocks=len(order.block_ids),
            num_chunks=len(transfer.plan) if transfer is not None else 0,
            num_layers=context.inward.num_layers,
            logical_nbytes=ledger.logical_nbytes,
            padding_nbytes=ledger.padding_nbytes,
            duplicate_nbytes=ledger.duplicate_nbytes,
            arrived_nbytes=transfer.arrived_nbytes if transfer is not None else 0,
            num_repeats=self.num_repeats,
        )


def make_grant(context: Context, order: Load, ticket: Ticket) -> Grant:
    """Exactly these blocks, under a reservation of this life."""
    settings, layout = context.settings, context.inward
    is_push = ticket.direction is Direction.PUSH
    schedule = Schedule.LAYER if is_push else Schedule.REQUEST
    return Grant(
        fence=replace(ticket.fence, reservation_id=context.next_reservation()),
        token_start=order.token_start,
        num_tokens=len(order.token_ids),
        block_ids=order.block_ids,
        geometry=choose_geometry(
            layout, len(order.block_ids), schedule, settings.chunk_nbytes, _STEP_BLOCKS
        ),
        credit_nbytes=max(settings.credit_nbytes, settings.chunk_nbytes),
        direction=ticket.direction,
        schedule=schedule,
        route_epoch=ticket.capability.capability.route_epoch,
    )


def make_transfer(context: Context, order: Load, grant: Grant) -> DestinationTransfer:
    """The transaction that fills them."""
    request = Request(
        request_id=grant.fence.request_id,
        prompt_token_ids=order.token_ids,
        sampling=SamplingParams(max_tokens=1),
        tenant_id=grant.fence.tenant_id,
    )
    return DestinationTransfer(
        request=request,
        output_token_ids=(),
        grant=grant,
        block_table=order.visible_blocks + order.block_ids,
        layout=context.inward,
        identity=context.info.identity,
        vocab_size=_MAX_TOKEN_ID,
    )
