"""Specification 0x01A in the protocol itself: P reuses b0..b2, D sees b0, so b1..b7 move."""

from baton.core.ids import Schedule
from baton.core.layout import KVLayout
from baton.core.manifest import ChunkGeometry
from baton.core.request import Token
from baton.protocol.destination import Arrival, DestinationTransfer
from baton.protocol.source import SourceTransfer
from tests.protocol.handoff import GRANT, IDENTITY, REQUEST, replace

LAYOUT = KVLayout(
    num_layers=4, num_kv_heads=2, head_dim=8, block_size=4, dtype_k="float16", dtype_v="float16"
)
TOKENS = tuple(range(500, 532))
SOURCE_TABLE = (20, 21, 22, 23, 24, 25, 26, 27)
DESTINATION_TABLE = (3, 30, 31, 32, 33, 34, 35, 36, 99)
PARTIAL = replace(
    GRANT,
    token_start=4,
    num_tokens=32,
    block_ids=DESTINATION_TABLE[1:8],
    geometry=ChunkGeometry(chunk_layers=1, chunk_blocks=1),
    credit_nbytes=1 << 20,
)


def source() -> SourceTransfer:
    return SourceTransfer(PARTIAL, LAYOUT, SOURCE_TABLE, num_ready_tokens=12)


def destination() -> DestinationTransfer:
    return DestinationTransfer(
        request=replace(REQUEST, prompt_token_ids=TOKENS),
        output_token_ids=(),
        grant=PARTIAL,
        block_table=DESTINATION_TABLE,
        layout=LAYOUT,
        identity=IDENTITY,
        vocab_size=1000,
    )


def test_reused_blocks_that_the_destination_lacks_move_before_any_compute():
    ready = source().take_ready()
    assert {(spec.layer_start, spec.block_start) for spec in ready} == {
        (layer, block) for layer in range(4) for block in (0, 1)
    }, "b1 and b2, which the compute set would silently omit"


def test_each_computed_block_moves_when_its_own_rows_are_final():
    copy = source()
    copy.take_ready()
    copy.mark_ready(2, 19)
    assert [(s.layer_start, s.block_start) for s in copy.take_ready()] == [(2, 2)]
    copy.mark_ready(2, 20)
    assert [(s.layer_start, s.block_start) for s in copy.take_ready()] == [(2, 3)]


def test_seven_blocks_of_1024_bytes_move_between_matching_blocks():
    copy = source()
    assert sum(spec.nbytes for spec in copy.plan) == 7168
    assert destination().ledger.physical_nbytes == 7168
    moved = {(copy.blocks_of(spec), copy.remote_blocks_of(spec)) for spec in copy.plan}
    assert moved == {((20 + block,), (29 + block,)) for block in range(1, 8)}
    assert copy.plan == destination().plan


def test_the_published_entry_starts_with_the_visible_prefix():
    copy, incoming = source(), destination()
    copy.mark_complete()
    for spec in copy.take_ready():
        copy.summed(spec.chunk_id, spec.chunk_id)
        assert incoming.arrive(spec.chunk_id, spec.nbytes, spec.chunk_id) is Arrival.NEW
        incoming.see(spec.chunk_id, spec.chunk_id)
    incoming.manifest = copy.seal(TOKENS, IDENTITY, Token(index=0, token_id=1), 12)
    assert incoming.manifest.request.token_start == 4
    assert incoming.defect() == ""
    incoming.validate()
    entry = incoming.published()
    assert (entry.block_ids, entry.num_tokens) == (DESTINATION_TABLE, 32)


def test_a_request_schedule_holds_even_reused_blocks_back():
    grant = replace(PARTIAL, schedule=Schedule.REQUEST)
    copy = SourceTransfer(grant, LAYOUT, SOURCE_TABLE, num_ready_tokens=12)
    assert copy.take_ready() == []
    copy.mark_complete()
    assert len(copy.take_ready()) == 28
