"""Runs between blocks of two sizes move every row once and are summed alike on both sides."""

import itertools
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from baton.core.ids import Direction, Fence, Schedule
from baton.core.layout import KVLayout
from baton.core.manifest import BlockSizes, ChunkGeometry, Grant, plan_grant
from baton.core.reblock import reblock_of, slot_runs, source_blocks, transform_defect
from baton.runtime.regions import Side, reblocked_local_runs, reblocked_runs

SIZES = (8, 16, 32)
PAIRS = [pair for pair in itertools.product(SIZES, SIZES) if pair[0] != pair[1]]
PLAIN = KVLayout(num_layers=3, num_kv_heads=2, head_dim=2, block_size=8)
LAYOUTS = {
    "float32": PLAIN,
    "values in half": replace(PLAIN, dtype_v="bfloat16"),
    "latent": replace(PLAIN, latent_dim=5, dtype_k="bfloat16"),
}
FENCE = Fence(
    tenant_id="",
    request_id="r",
    generation=1,
    attempt=1,
    source_id="p",
    source_epoch=1,
    destination_id="d",
    destination_epoch=1,
    reservation_id=1,
)


class Pool:
    """Bytes of a pool in which every byte of every row is known by its token."""

    def __init__(self, layout: KVLayout, num_tokens: int, seed: int) -> None:
        self.layout = layout
        order = list(range(layout.num_blocks(num_tokens) + 3))
        Random(seed).shuffle(order)
        self.table = order[: layout.num_blocks(num_tokens)]
        self.total = len(order)
        self.bytes = np.zeros(layout.num_layers * self.total * layout.layer_block_nbytes, np.uint8)

    def planes(self):
        layout = self.layout
        if layout.latent_dim:
            return [layout.row_nbytes]
        width_v = 2 if layout.dtype_v == "bfloat16" else 4
        return [layout.head_dim * 4] * layout.num_kv_heads + [
            layout.head_dim * width_v
        ] * layout.num_kv_heads

    def row(self, layer: int, plane: int, token: int) -> np.ndarray:
        """The bytes of one token in one plane, by walking `[layer][block][plane][slot]`."""
        layout, widths = self.layout, self.planes()
        block, slot = self.table[token // layout.block_size], token % layout.block_size
        start = (layer * self.total + block) * layout.layer_block_nbytes
        start += sum(widths[:plane]) * layout.block_size + slot * widths[plane]
        return self.bytes[start : start + widths[plane]]

    def fill(self, num_tokens: int) -> None:
        for layer in range(self.layout.num_layers):
            for plane in range(len(self.planes())):
                for token in range(num_tokens):
                    row = self.row(layer, plane, token)
                    row[:] = np.arange(row.size) + 7 * token + 31 * plane + 101 * layer

    def gather(self, runs) -> bytes:
        return b"".join(self.bytes[offset : offset + nbytes].tobytes() for offset, nbytes in runs)


def granted(layout: KVLayout, source: int, token_start: int, num_tokens: int, cut) -> Grant:
    start = token_start // layout.block_size
    return Grant(
        fence=FENCE,
        token_start=token_start,
        num_tokens=num_tokens,
        block_ids=tuple(range(layout.num_blocks(num_tokens) - start)),
        geometry=cut,
        credit_nbytes=1 << 30,
        direction=Direction.PUSH,
        schedule=Schedule.LAYER,
        route_epoch=0,
        block_sizes=BlockSizes(source=source, destination=layout.block_size),
    )


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_every_row_arrives_and_both_sides_sum_the_same_bytes(source, destination, name):
    theirs = replace(LAYOUTS[name], block_size=source)
    mine = replace(LAYOUTS[name], block_size=destination)
    for num_tokens, prefix_blocks in ((1, 0), (destination - 1, 0), (67, 0), (67, 1), (97, 2)):
        token_start = prefix_blocks * destination
        for cut in (
            ChunkGeometry(chunk_layers=1, chunk_blocks=1),
            ChunkGeometry(chunk_layers=3, chunk_blocks=2),
        ):
            if token_start <= num_tokens:
                move_all(granted(mine, source, token_start, num_tokens, cut), theirs, mine)


def move_all(grant: Grant, theirs: KVLayout, mine: KVLayout) -> None:
    out, into = Pool(theirs, grant.num_tokens, 1), Pool(mine, grant.num_tokens, 2)
    out.fill(grant.num_tokens)
    first = grant.token_start // mine.block_size
    moved_nbytes = 0
    for spec in plan_grant(grant, mine):
        reblock = reblock_of(grant, mine, spec)
        begin = first + spec.block_start
        source = Side(out.table[source_blocks(grant, theirs, spec)], out.total)
        target = Side(into.table[begin : begin + spec.num_blocks], into.total)
        runs = reblocked_runs(theirs, spec, reblock, source, target)
        for origin, place, nbytes in runs:
            into.bytes[place : place + nbytes] = out.bytes[origin : origin + nbytes]
        assert sum(nbytes for _, _, nbytes in runs) == spec.nbytes
        sent = out.gather([(origin, nbytes) for origin, _, nbytes in runs])
        assert sent == out.gather(reblocked_local_runs(theirs, spec, reblock, source, inward=False))
        assert sent == into.gather(reblocked_local_runs(mine, spec, reblock, target, inward=True))
        moved_nbytes += spec.nbytes
    assert moved_nbytes == (grant.num_tokens - grant.token_start) * mine.bytes_per_token
    for layer in range(mine.num_layers):
        for plane in range(len(into.planes())):
            for token in range(grant.token_start, grant.num_tokens):
                here, there = into.row(layer, plane, token), out.row(layer, plane, token)
                assert np.array_equal(here, there), (layer, plane, token)
    assert into.bytes.sum(dtype=np.int64) > 0


def test_slots_that_adjoin_on_both_sides_are_one_run():
    grant = granted(
        replace(PLAIN, block_size=32), 8, 0, 40, ChunkGeometry(chunk_layers=1, chunk_blocks=9)
    )
    (spec, *_) = plan_grant(grant, replace(PLAIN, block_size=32))
    runs = [tuple(run) for run in slot_runs(reblock_of(grant, PLAIN, spec))]
    assert runs == [
        (0, 0, 0, 0, 8),
        (1, 0, 0, 8, 8),
        (2, 0, 0, 16, 8),
        (3, 0, 0, 24, 8),
        (4, 0, 1, 0, 8),
    ]


def test_only_block_size_and_stages_may_differ():
    assert transform_defect(PLAIN, replace(PLAIN, block_size=64, pp_size=2)) == ""
    for name, value in {
        "num_layers": 4,
        "num_kv_heads": 1,
        "head_dim": 4,
        "dtype_k": "bfloat16",
        "dtype_v": "bfloat16",
        "axis_order": "block,layer,kv,head,slot,dim",
        "tp_size": 2,
        "latent_dim": 8,
    }.items():
        assert transform_defect(PLAIN, replace(PLAIN, **{name: value})) == name
