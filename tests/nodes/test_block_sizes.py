"""Prefill in blocks of one size, decode in blocks of another: the same text, and only rows move."""

import itertools

import pytest
from msgspec.structs import replace

from baton.config import CacheConfig, WorkerConfig
from baton.core.cache import Milestone
from baton.core.ids import Direction, Mode, Purpose
from baton.core.manifest import BlockSizes
from baton.core.messages import Denied, Prefill, Reserve, Reserved, Seal
from baton.sim.plan import Plan
from tests.stage import Stage, uneven_plan

SIZES = (8, 16, 32)
PAIRS = [pair for pair in itertools.product(SIZES, SIZES) if pair[0] != pair[1]]
LENGTHS = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100)


def plan(source: int, destination: int, seed: int = 0, **transfer) -> Plan:
    """Chunks of one block of one layer, credit for four of them."""
    nbytes = 8 * destination
    options = {"chunk_nbytes": nbytes, "credit_nbytes": 4 * nbytes, **transfer}
    return uneven_plan(
        seed=seed,
        transfer=options,
        worker=WorkerConfig(block_size=source, max_batch_tokens=24),
        decode_block_size=destination,
    )


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("schedule", ["layer", "request", "aggregated"])
@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_every_pair_of_sizes_gives_the_text_of_one_worker(source, destination, schedule, direction):
    stage = Stage(plan(source, destination, schedule=schedule, direction=direction))
    for number, length in enumerate(LENGTHS):
        stage.submit(f"r{number}", length, first=number, max_tokens=5, ignore_eos=True)
    stage.serve()
    stage.assert_all_right()
    for name in stage.requests:
        assert stage.started(name).mode is Mode.DISAGGREGATED
    moved = stage.destination.node.context.counters
    row_nbytes = stage.destination.layout.bytes_per_token
    assert moved["handoff_logical_bytes"] == sum(LENGTHS) * row_nbytes
    assert moved["handoff_padding_bytes"] == 0
    stage.settle()


@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_a_pinned_prefix_may_end_inside_a_block_of_the_other_side(source, destination):
    """Each side reuses by its own size; what the destination lacks begins where its blocks do."""
    prompt = list(range(50, 127))
    for hit in range(0, 73, 8):
        stage = Stage(plan(source, destination, seed=hit))
        if hit:
            stage.submit("warm", [*prompt[:hit], 7])
            stage.serve()
        stage.submit("r", prompt)
        stage.serve()
        stage.assert_right()
        ((_, _, reserved),) = stage.traced("reserved", "r")
        assert reserved.data["visible_tokens"] == hit // destination * destination
        assert stage.end().usage.cached_tokens == hit // source * source


def test_the_manifest_carries_both_layouts():
    stage = Stage(plan(8, 32))
    stage.submit("r", 40)
    stage.serve()
    (seal,) = stage.kinds(Seal)
    tensor = seal.manifest.tensor
    assert (tensor.source_layout.block_size, tensor.layout.block_size) == (8, 32)
    assert tensor.layout_digest == stage.destination.layout.digest


@pytest.mark.parametrize(
    "change", [{"block_size": 16}, {"head_dim": 2}, {"dtype_v": "bfloat16"}], ids=str
)
def test_a_manifest_from_another_layout_is_refused_by_name(change):
    stage = Stage(plan(8, 32))

    def swap(sender, receiver, message):
        if isinstance(message, Seal):
            tensor = message.manifest.tensor
            layout = replace(tensor.source_layout, **change)
            manifest = replace(message.manifest, tensor=replace(tensor, source_layout=layout))
            stage.hand(receiver, replace(message, manifest=manifest), sender)
        return (0,)

    stage.delay_us = swap
    stage.submit("r", 40)
    stage.until(lambda: stage.traced("attempt_failed"))
    assert stage.traced("attempt_failed")[0][2].data["reason"] == "source_layout_mismatch"


@pytest.mark.parametrize(
    "sizes",
    [None, BlockSizes(source=8, destination=16), BlockSizes(source=16, destination=32)],
    ids=["none", "not the destination's", "not the source's"],
)
def test_a_grant_of_other_sizes_is_refused(sizes):
    stage = Stage(plan(8, 32))

    def swap(sender, receiver, message):
        if isinstance(message, Prefill):
            grant = replace(message.grant, block_sizes=sizes)
            stage.hand(receiver, replace(message, grant=grant))
            return ()
        return (0,)

    stage.delay_us = swap
    stage.submit("r", 40)
    stage.until(lambda: stage.kinds(Denied))
    assert stage.kinds(Denied)[0].reason == "grant_mismatch"


def test_a_byte_that_changes_on_the_way_is_noticed():
    stage = Stage(plan(8, 32))
    stage.hit_chunk(2, "corrupt")
    stage.submit("r", 40)
    stage.serve()
    stage.assert_right()
    assert stage.traced("attempt_failed")[0][2].data["reason"] == "checksum_mismatch"


def test_a_copy_of_history_between_two_sizes_is_refused_by_name():
    whole = CacheConfig(milestone=Milestone.BIDIRECTIONAL)
    stage = Stage(replace(plan(8, 32), cache=whole))
    request = stage.submit("r", 64)
    stage.serve()
    asked = stage.kinds(Reserve)[0]
    fence = replace(asked.fence, request_id="copy", reservation_id=0)
    copy = replace(
        asked,
        fence=fence,
        request=replace(request, request_id="copy", prompt_token_ids=tuple(range(900, 964))),
        purpose=Purpose.INSERT,
    )
    stage.sent.clear()
    stage.hand(stage.destination.worker_id, copy)
    denied = stage.kinds(Denied)
    assert [d.reason for d in denied] == ["block_sizes_differ"] and not denied[0].transient


def test_the_grant_names_both_sizes_and_only_where_they_differ():
    for source, destination in ((8, 32), (16, 16)):
        stage = Stage(plan(source, destination))
        stage.submit("r", 40)
        stage.serve()
        sizes = stage.kinds(Reserved)[0].grant.block_sizes
        unequal = BlockSizes(source=source, destination=destination)
        assert sizes == (unequal if source != destination else None)
