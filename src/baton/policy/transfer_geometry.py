"""How many calls a transfer takes, by schedule and by how K and V lie in memory (0x09E).

Two counts are kept apart: *transfer calls*, orders to the transfer engine, each with its queue,
its notification and its wake; and *network calls*, contiguous stretches that it moves for them.
"""

import itertools
from collections.abc import Sequence

import msgspec

from baton.core.ids import Schedule
from baton.core.layout import KVLayout
from baton.core.manifest import ChunkSpec, choose_geometry
from baton.core.reblock import Reblock, slot_runs


class CallCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one transfer."""

    transfer: int
    network: int


def discrete_calls(num_layers: int, num_blocks: int, schedule: Schedule) -> CallCounts:
    """The discrete layout: K and V of a layer are apart, so a block has 2L addresses.

    A longer prompt multiplies the network calls by its blocks. Aggregated, it stays one call of
    each kind for the whole request: the blocks were packed into one region first.
    """
    addresses = 2 * num_layers
    if schedule is Schedule.AGGREGATED:
        return CallCounts(transfer=1, network=1)
    transfer = addresses if schedule is Schedule.LAYER else 1
    return CallCounts(transfer=transfer, network=addresses * num_blocks)


def num_stretches(local_blocks: Sequence[int], remote_blocks: Sequence[int]) -> int:
    """Stretches in which blocks adjoin on both sides."""
    pairs = list(zip(local_blocks, remote_blocks, strict=True))
    breaks = sum(
        (here + 1, there + 1) != after for (here, there), after in itertools.pairwise(pairs)
    )
    return breaks + 1 if pairs else 0


def paged_calls(
    plan: Sequence[ChunkSpec], local_blocks: Sequence[int], remote_blocks: Sequence[int]
) -> CallCounts:
    """Our layout: K and V of a block of a layer are one stretch, and blocks that adjoin join it.

    So a block has L addresses. Nothing is packed: an order names its stretches, however many.
    """
    network = 0
    for spec in plan:
        end = spec.block_start + spec.num_blocks
        mine, theirs = local_blocks[spec.block_start : end], remote_blocks[spec.block_start : end]
        network += spec.num_layers * num_stretches(mine, theirs)
    return CallCounts(transfer=len(plan), network=network)


def reblocked_runs_of(layout: KVLayout, reblock: Reblock) -> int:
    """Stretches of one layer of a chunk between blocks of two sizes, where none adjoin: one for
    each head of K and of V of each common piece of two blocks."""
    planes = 1 if layout.latent_dim else 2 * layout.num_kv_heads
    return planes * sum(1 for _ in slot_runs(reblock))


def expected_calls(
    layout: KVLayout,
    num_tokens: int,
    schedule: Schedule,
    chunk_nbytes: int,
    credit_nbytes: int,
    step_blocks: int,
) -> CallCounts:
    """Our layout before any block is known: those of one chunk adjoin, as in a pool with room."""
    num_blocks = max(1, layout.num_blocks(num_tokens))
    cut = choose_geometry(layout, num_blocks, schedule, chunk_nbytes, step_blocks, credit_nbytes)
    stretches = -(-num_blocks // cut.chunk_blocks)
    return CallCounts(
        transfer=stretches * -(-layout.num_layers // cut.chunk_layers),
        network=stretches * layout.num_layers,
    )
