"""Reserving storage at a destination before any prefill starts (specification 0x06B, 0x08E)."""

from collections.abc import Sequence

import msgspec

from baton.core.ids import Purpose
from baton.core.layout import KVLayout
from baton.core.manifest import BlockSizes, Grant, PipelineSizes, choose_geometry
from baton.core.messages import Reserve
from baton.core.reblock import transform_defect
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
    source = context.layout_of(fence.source_id)
    defect = transform_defect(source, context.layout)
    if defect:
        return Denial(reason=f"layouts differ in {defect}", transient=False)
    if is_short:
        return Denial(reason="preempted_sequences_first", transient=True)
    layout, memory, request = context.layout, context.memory, message.request
    num_tokens = request.num_prompt_tokens + len(message.output_token_ids)
    capacity = memory.pool.num_blocks * layout.block_size
    if num_tokens + 1 > capacity:
        reason = f"{num_tokens} tokens exceed the K/V pool of {capacity} tokens"
        return Denial(reason=reason, transient=False)
    if message.purpose is Purpose.INSERT:
        return _reserve_copy(context, message, num_tokens)
    left = max(1, request.sampling.max_tokens - len(message.output_token_ids))
    growth = left if POLICIES[context.worker.batch_policy].reserves_whole_length else 0
    growth = growth or min(left, max(1, context.worker.growth_tokens))
    wanted = num_tokens + growth
    # A prompt computed here needs at least its last row computed, to draw from it.
    visible = num_tokens - 1 if message.fence.colocated else num_tokens
    hashes = memory.hashes(request, request.prompt_token_ids)
    hashes = hashes[: visible // layout.block_size]
    held = _hold(context, hashes, min(wanted, capacity))
    if held is not None and not fence.colocated:
        # What need not move; what need not be computed is counted where the prompt is.
        context.counters["visible_blocks_asked"] += len(hashes)
        context.counters["visible_blocks_found"] += held[1]
    return _granted(context, message, held, num_tokens)


def _hold(
    context: WorkerContext, hashes: Sequence[bytes], num_tokens: int
) -> tuple[list[int], int] | None:
    """A table of so many tokens, and how many of its blocks are the pinned prefix; or nothing."""
    table = context.memory.match(hashes, len(hashes))
    num_pinned = len(table)
    if not context.memory.allocate(table, num_tokens):
        context.memory.free(table)
        return None
    return table, num_pinned


def _reserve_copy(
    context: WorkerContext, message: Reserve, num_tokens: int
) -> DestinationTransfer | Denial:
    """Room for whole blocks of history that are not here yet; nobody decodes them: no growth."""
    layout, memory, request = context.layout, context.memory, message.request
    if not context.keeps_prompts:
        return Denial(reason="keeps_no_history", transient=False)
    source = context.layout_of(message.fence.source_id)
    if source.block_size != layout.block_size:
        return Denial(reason="block_sizes_differ", transient=False)
    if source.pp_size != layout.pp_size:
        return Denial(reason="pp_sizes_differ", transient=False)
    if num_tokens % layout.block_size or message.output_token_ids:
        return Denial(reason="not_whole_blocks", transient=False)
    hashes = memory.hashes(request, request.prompt_token_ids)
    if all(memory.pool.lookup(block_hash) is not None for block_hash in hashes):
        return Denial(reason="already_held", transient=False)
    return _granted(context, message, _hold(context, hashes, num_tokens), num_tokens)


def _granted(
    context: WorkerContext, message: Reserve, held: tuple[list[int], int] | None, num_tokens: int
) -> DestinationTransfer | Denial:
    if held is None:
        return Denial(reason="no_kv_capacity", transient=True)
    table, num_pinned = held
    grant = _grant(context, message, table, num_pinned, num_tokens)
    return DestinationTransfer(
        request=message.request,
        output_token_ids=message.output_token_ids,
        grant=grant,
        block_table=tuple(table),
        layout=context.layout,
        identity=context.model.identity,
        vocab_size=context.model.vocab_size,
    )


def _grant(
    context: WorkerContext, message: Reserve, table: list[int], num_pinned: int, num_tokens: int
) -> Grant:
    layout, source = context.layout, context.layout_of(message.fence.source_id)
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
            context.transfer.credit_nbytes,
        ),
        credit_nbytes=context.transfer.credit_nbytes,
        direction=message.direction,
        schedule=message.schedule,
        route_epoch=message.route_epoch,
        purpose=message.purpose,
        cache_generation=context.cache_generation,
        block_sizes=_block_sizes(source, layout),
        pp_sizes=_pp_sizes(source, layout),
    )


def _block_sizes(source: KVLayout, destination: KVLayout) -> BlockSizes | None:
    if source.block_size == destination.block_size:
        return None
    return BlockSizes(source=source.block_size, destination=destination.block_size)


def _pp_sizes(source: KVLayout, destination: KVLayout) -> PipelineSizes | None:
    if source.pp_size == destination.pp_size:
        return None
    return PipelineSizes(source=source.pp_size, destination=destination.pp_size)
