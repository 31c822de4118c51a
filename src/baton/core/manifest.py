"""Chunks, grants and the handoff manifest with its four namespaces (specification 0x01A)."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence

import msgspec

from baton.core.ids import Direction, Fence, Purpose, Schedule
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.remap.partition import even_stages
from baton.core.request import Token
from baton.core.token_bytes import token_bytes


class ChunkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One unit of movement: a layer range of a range of the transfer set's blocks.

    `block_start` counts within the transferred blocks, not within a pool.
    """

    chunk_id: int
    layer_start: int
    num_layers: int
    block_start: int
    num_blocks: int
    nbytes: int


class SealedChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk with the checksum of the source's bytes."""

    spec: ChunkSpec
    checksum: int


class ChunkGeometry(msgspec.Struct, frozen=True, kw_only=True):
    """How a transfer set is cut: at most this many layers and blocks in one chunk."""

    chunk_layers: int
    chunk_blocks: int


class BlockSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a block on each side, where they differ."""

    source: int
    destination: int


class PipelineSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Pipeline stages of each side, where their numbers differ."""

    source: int
    destination: int


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a destination promised: storage for exactly these blocks, under this reservation."""

    fence: Fence
    token_start: int
    """First transferred token: everything before it is visible at the destination already."""
    num_tokens: int
    """Rows the published entry will hold."""
    block_ids: tuple[int, ...]
    """Destination pool blocks of the transfer set, in token order."""
    geometry: ChunkGeometry
    credit_nbytes: int
    direction: Direction
    schedule: Schedule
    route_epoch: int
    """The router's, as it was reserved."""
    purpose: Purpose = Purpose.HANDOFF
    cache_generation: int = 0
    """The destination's, as it was reserved: the source may not use history of a lower one."""
    block_sizes: BlockSizes | None = None
    """None where they are equal: then whole blocks move, padding included; otherwise rows."""
    pp_sizes: PipelineSizes | None = None
    """None where they are equal. No chunk reaches across a border of either side's stages."""

    @property
    def is_copy(self) -> bool:
        """History moves for later prompts: nothing is computed and nothing is drawn."""
        return self.purpose is Purpose.INSERT

    @property
    def num_remote_blocks(self) -> int:
        """Blocks that must cross between workers; with any, a capability is needed."""
        return 0 if self.fence.colocated else len(self.block_ids)


def grant_defect(grant: Grant, layout: KVLayout, pool_num_blocks: int) -> str:
    """Name of the first field that no honest destination could have granted, or ""."""
    end, geometry, blocks = layout.num_blocks(grant.num_tokens), grant.geometry, grant.block_ids
    start, unaligned = divmod(grant.token_start, layout.block_size)
    if grant.fence.reservation_id <= 0:
        return "reservation_id"
    if grant.num_tokens < 1 or end > pool_num_blocks:
        return "num_tokens"
    if unaligned or not 0 <= grant.token_start <= grant.num_tokens:
        return "token_start"
    if len(blocks) != end - start or len(set(blocks)) != len(blocks):
        return "block_ids"
    if any(not 0 <= block < pool_num_blocks for block in blocks):
        return "block_ids"
    if geometry.chunk_layers < 1 or geometry.chunk_blocks < 1:
        return "geometry"
    if grant.block_sizes is not None and _are_odd(grant.block_sizes, grant, layout):
        return "block_sizes"
    if grant.pp_sizes is not None and _splits_are_odd(grant.pp_sizes, grant, layout):
        return "pp_sizes"
    chunk_blocks = min(geometry.chunk_blocks, len(blocks))
    chunk_layers = min(geometry.chunk_layers, layout.num_layers)
    if grant.credit_nbytes < max(1, chunk_blocks * chunk_layers * layout.layer_block_nbytes):
        return "credit_nbytes"
    return ""


def _are_odd(sizes: BlockSizes, grant: Grant, layout: KVLayout) -> bool:
    """Block sizes that are equal after all, not the destination's, or of a copy of history."""
    is_own = sizes.destination == layout.block_size != sizes.source
    return sizes.source < 1 or not is_own or grant.is_copy or grant.fence.colocated


def _splits_are_odd(sizes: PipelineSizes, grant: Grant, layout: KVLayout) -> bool:
    """Splits that are equal after all, impossible, not the destination's, or of a copy."""
    is_own = sizes.destination == layout.pp_size != sizes.source
    fits = 1 <= sizes.source <= layout.num_layers
    return not fits or not is_own or grant.is_copy or grant.fence.colocated


class RequestNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """Whose state it is: fence, prompt digest and token interval."""

    fence: Fence
    prompt_digest: str
    token_start: int
    num_tokens: int


class TensorNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """How a byte is decoded: in which layout it was moved and summed, and from which it came."""

    layout: KVLayout
    """The destination's."""
    layout_digest: str
    source_layout: KVLayout
    """The source's own; it may differ in the block size alone."""


class PlacementNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bytes went and in which pieces."""

    transfer_id: str
    route_epoch: int
    direction: Direction
    schedule: Schedule
    chunks: tuple[SealedChunk, ...]


class HandoffManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Sealed by the source after its last layer; the destination publishes from it or not at all.

    The first token travels inside it, so no other request's token can be taken for it.
    """

    request: RequestNamespace
    model: ModelIdentity
    tensor: TensorNamespace
    placement: PlacementNamespace
    first_token: Token | None
    """None where nothing was drawn: a copy of history."""
    num_cached_tokens: int


class CacheEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The only thing decode accepts: a complete, validated, visible cache of one generation."""

    request_id: str
    generation: int
    transfer_id: str
    reservation_id: int
    block_ids: tuple[int, ...]
    num_tokens: int
    layout_digest: str


def prompt_digest(token_ids: Sequence[int]) -> str:
    """Digest of a token-id sequence."""
    return hashlib.blake2b(token_bytes(token_ids), digest_size=16).hexdigest()


def choose_geometry(
    layout: KVLayout,
    num_blocks: int,
    schedule: Schedule,
    chunk_nbytes: int,
    step_blocks: int,
    credit_nbytes: int = 0,
) -> ChunkGeometry:
    """Cut so that a chunk stays within `chunk_nbytes` (but at least one block of one layer).

    A layer schedule sends single layers, in groups no larger than one prefill step produces; a
    request schedule gathers several layers of a small prompt into one chunk; an aggregated one
    takes as few chunks as `credit_nbytes` allows.
    """
    if schedule is Schedule.AGGREGATED:
        return _fewest_chunks(layout, max(1, num_blocks), max(credit_nbytes, chunk_nbytes))
    chunk_blocks = max(1, min(num_blocks or 1, chunk_nbytes // layout.layer_block_nbytes))
    if schedule is Schedule.LAYER:
        return ChunkGeometry(chunk_layers=1, chunk_blocks=min(chunk_blocks, max(1, step_blocks)))
    layers = chunk_nbytes // (chunk_blocks * layout.layer_block_nbytes)
    return ChunkGeometry(
        chunk_layers=max(1, min(layout.num_layers, layers)), chunk_blocks=chunk_blocks
    )


def _fewest_chunks(layout: KVLayout, num_blocks: int, limit_nbytes: int) -> ChunkGeometry:
    """The cut into the fewest chunks of at most `limit_nbytes` (at least a block of a layer)."""
    cells = max(1, limit_nbytes // layout.layer_block_nbytes)
    cuts = [
        ChunkGeometry(chunk_layers=layers, chunk_blocks=min(num_blocks, cells // layers))
        for layers in range(min(layout.num_layers, cells), 0, -1)
    ]
    return min(
        cuts,
        key=lambda cut: (
            -(-layout.num_layers // cut.chunk_layers) * -(-num_blocks // cut.chunk_blocks)
        ),
    )


def plan_grant(grant: Grant, layout: KVLayout) -> tuple[ChunkSpec, ...]:
    """The chunks of a grant in its destination's `layout`; both sides derive the same list."""
    num_rows = grant.num_tokens - grant.token_start if grant.block_sizes else None
    other = grant.pp_sizes.source if grant.pp_sizes else 1
    return plan_chunks(layout, grant.num_remote_blocks, grant.geometry, num_rows, other)


def plan_chunks(
    layout: KVLayout,
    num_blocks: int,
    geometry: ChunkGeometry,
    num_rows: int | None = None,
    source_pp_size: int = 1,
) -> tuple[ChunkSpec, ...]:
    """Cut `num_blocks` blocks of every layer into chunks that cover each (layer, block) once.

    Ids count in the order rows become ready. With `num_rows` the last block moves without its
    padding: where block sizes differ the source may not even have those slots. A chunk lies in one
    pipeline stage of the source, `source_pp_size` of them, and in one of the destination's.
    """
    splits = {layout.pp_size, source_pp_size}
    pieces = _layer_pieces(layout.num_layers, splits, geometry.chunk_layers)
    most_rows = num_blocks * layout.block_size if num_rows is None else num_rows
    chunks: list[ChunkSpec] = []
    for block_start in range(0, num_blocks, geometry.chunk_blocks):
        blocks = min(geometry.chunk_blocks, num_blocks - block_start)
        for layer_start, layers in pieces:
            end_row = min((block_start + blocks) * layout.block_size, most_rows)
            chunks.append(
                ChunkSpec(
                    chunk_id=len(chunks),
                    layer_start=layer_start,
                    num_layers=layers,
                    block_start=block_start,
                    num_blocks=blocks,
                    nbytes=layers * layout.row_nbytes * (end_row - block_start * layout.block_size),
                )
            )
    return tuple(chunks)


def _layer_pieces(num_layers: int, splits: Iterable[int], most: int) -> list[tuple[int, int]]:
    """(first layer, layers) of pieces of `most` layers at most, none across a stage's border."""
    borders = {
        0,
        *(end for pp in splits for end in itertools.accumulate(even_stages(num_layers, pp))),
    }
    return [
        (first, min(most, end - first))
        for start, end in itertools.pairwise(sorted(borders))
        for first in range(start, end, most)
    ]


def covers_exactly(chunks: Sequence[ChunkSpec], num_layers: int, num_blocks: int) -> bool:
    """True when every (layer, block) cell is covered once and none twice."""
    cells: set[tuple[int, int]] = set()
    count = 0
    for chunk in chunks:
        for layer in range(chunk.layer_start, chunk.layer_start + chunk.num_layers):
            for block in range(chunk.block_start, chunk.block_start + chunk.num_blocks):
                cells.add((layer, block))
                count += 1
    expected = num_layers * num_blocks
    in_range = all(0 <= a < num_layers and 0 <= b < num_blocks for a, b in cells)
    return count == expected and len(cells) == expected and in_range
