"""Reserving storage at a destination before any prefill starts (specification 0x06B, 0x08E)."""

import msgspec

from baton.core.manifest import Grant, choose_geometry
from baton.core.messages import Reserve
from baton.nodes.context import WorkerContext
from baton.policy.batching.policies import POLICIES
from baton.protocol.destination import DestinationTransfer


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing was reserved; a transient denial may be granted later."""

    reason: str
    transient: bool


def reserve(
    context: WorkerContext, message: Reserve, num_open: int, *, is_short: bool
) -> DestinationTransfer | Denial:
    """Pin the visible prefix, allocate the rest and the predicted growth, and fix the grant.

    The destination decides by its own memory now, whatever snapshot the route was priced on. On a
    denial nothing is held. `num_open` reservations exist; `is_short` says that a preempted
    sequence waits for blocks, which nobody new may take from it.
    """
    fence = message.fence
    if not context.is_live_peer(fence.source_id, fence.source_epoch):
        return Denial(reason="source_unknown", transient=True)
    if num_open >= context.worker.max_reservations:
        return Denial(reason="too_many_reservations", transient=True)
    if is_short:
        return Denial(reason="preempted_sequences_first", transient=True)
    layout, memory, request = context.layout, context.memory, message.request
    num_tokens = request.num_prompt_tokens + len(message.output_token_ids)
    capacity = memory.pool.num_blocks * layout.block_size
    if num_tokens + 1 > capacity:
        reason = f"{num_tokens} tokens exceed the K/V pool of {capacity} tokens"
        return Denial(reason=reason, transient=False)
    left = max(1, request.sampling.max_tokens - len(message.output_token_ids))
    growth = left if POLICIES[context.worker.batch_policy].reserves_whole_length else 0
    growth = growth or min(left, max(1, context.worker.growth_tokens))
    wanted = num_tokens + growth
    # A prompt computed here needs at least its last row computed, to draw from it.
    visible = num_tokens - 1 if message.fence.colocated else num_tokens
    hashes = memory.hashes(request, request.prompt_token_ids)
    table = memory.pin_prefix(hashes, visible // layout.block_size)
    num_pinned = len(table)
    if not memory.grow(table, min(wanted, capacity)):
        memory.release(table)
        return Denial(reason="no_kv_capacity", transient=True)
    grant = _grant(context, message, table, num_pinned, num_tokens)
    return DestinationTransfer(
        request=request,
        output_token_ids=message.output_token_ids,
        grant=grant,
        block_table=tuple(table),
        layout=layout,
        identity=context.model.identity,
        vocab_size=context.model.vocab_size,
    )


def _grant(
    context: WorkerContext, message: Reserve, table: list[int], num_pinned: int, num_tokens: int
) -> Grant:
    layout = context.layout
    end = layout.num_blocks(num_tokens)
    return Grant(
        fence=msgspec.structs.replace(message.fence, reservation_id=context.mint_reservation_id()),
        token_start=num_pinned * layout.block_size,
        num_tokens=num_tokens,
        block_ids=tuple(table[num_pinned:end]),
        geometry=choose_geometry(
            layout,
            end - num_pinned,
            message.schedule,
            context.transfer.chunk_nbytes,
            context.worker.max_batch_tokens // layout.block_size,
        ),
        credit_nbytes=context.transfer.credit_nbytes,
        direction=message.direction,
        schedule=message.schedule,
        route_epoch=message.route_epoch,
    )
