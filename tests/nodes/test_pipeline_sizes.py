"""Workers cut into other pipeline stages: the same text, and no chunk across a border."""

import itertools

import pytest
from msgspec.structs import replace

from baton.config import CacheConfig, WorkerConfig
from baton.core.cache import Milestone
from baton.core.ids import Direction, Mode, Purpose
from baton.core.manifest import PipelineSizes, covers_exactly
from baton.core.messages import Denied, Prefill, Reserve, Reserved, Seal
from baton.core.remap.partition import even_stages
from tests.stage import Stage, uneven_plan

LAYERS = 5
LENGTHS = (1, 4, 7, 16, 33)
SPLITS = [(1, 1), (2, 1), (1, 3), (3, 2), (5, 4), (2, 2)]


def staged(source: int, destination: int, **changes) -> Stage:
    """Five layers; a chunk may hold all of them."""
    options = {
        "transfer": {"chunk_nbytes": 4096, "credit_nbytes": 8192, **changes.pop("transfer", {})},
        "worker": WorkerConfig(block_size=4, max_batch_tokens=16),
    }
    return Stage(
        uneven_plan(
            num_layers=LAYERS, prefill_pp=source, decode_pp=destination, **options, **changes
        )
    )


@pytest.mark.parametrize("decode_block_size", [0, 8])
@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("schedule", ["layer", "request"])
@pytest.mark.parametrize(("source", "destination"), SPLITS)
def test_every_pair_of_splits_gives_the_text_of_one_worker(
    source, destination, schedule, direction, decode_block_size
):
    stage = staged(
        source,
        destination,
        decode_block_size=decode_block_size,
        transfer={"schedule": schedule, "direction": direction},
    )
    for number, length in enumerate(LENGTHS):
        stage.submit(f"r{number}", length, first=number, max_tokens=4, ignore_eos=True)
    stage.serve()
    stage.assert_all_right()
    for name in stage.requests:
        assert stage.started(name).mode is Mode.DISAGGREGATED
    borders = {
        end
        for size in (source, destination)
        for end in itertools.accumulate(even_stages(LAYERS, size))
    }
    seals = stage.kinds(Seal)
    assert len(seals) >= len(LENGTHS)
    for seal in seals:
        tensor, placement = seal.manifest.tensor, seal.manifest.placement
        assert (tensor.source_layout.pp_size, tensor.layout.pp_size) == (source, destination)
        specs = [chunk.spec for chunk in placement.chunks]
        rows = seal.manifest.request.num_tokens - seal.manifest.request.token_start
        assert covers_exactly(specs, LAYERS, tensor.layout.num_blocks(rows))
        for spec in specs:
            inner = range(spec.layer_start + 1, spec.layer_start + spec.num_layers)
            assert not borders & set(inner)
    stage.settle()


def test_chunks_end_at_the_borders_of_both_sides():
    """Five layers in stages of 3 and 2 against stages of 2, 2 and 1: no chunk is longer than 2."""
    stage = staged(2, 3, transfer={"schedule": "request"})
    stage.submit("r", 10)
    stage.serve()
    (seal,) = stage.kinds(Seal)
    spans = [(c.spec.layer_start, c.spec.num_layers) for c in seal.manifest.placement.chunks]
    assert (even_stages(LAYERS, 2), even_stages(LAYERS, 3)) == ((3, 2), (2, 2, 1))
    assert spans == [(0, 2), (2, 1), (3, 1), (4, 1)]


@pytest.mark.parametrize(
    "sizes",
    [
        None,
        PipelineSizes(source=2, destination=2),
        PipelineSizes(source=1, destination=3),
        PipelineSizes(source=6, destination=3),
    ],
    ids=["none", "not the destination's", "not the source's", "more stages than layers"],
)
def test_a_grant_of_other_splits_is_refused(sizes):
    stage = staged(2, 3)

    def swap(sender, receiver, message):
        if isinstance(message, Prefill):
            stage.hand(receiver, replace(message, grant=replace(message.grant, pp_sizes=sizes)))
            return ()
        return (0,)

    stage.delay_us = swap
    stage.submit("r", 10)
    stage.until(lambda: stage.kinds(Denied))
    assert stage.kinds(Denied)[0].reason == "grant_mismatch"


def test_a_manifest_from_another_split_is_refused_by_name():
    stage = staged(2, 3)

    def swap(sender, receiver, message):
        if isinstance(message, Seal):
            tensor = message.manifest.tensor
            layout = replace(tensor.source_layout, pp_size=1)
            manifest = replace(message.manifest, tensor=replace(tensor, source_layout=layout))
            stage.hand(receiver, replace(message, manifest=manifest), sender)
            return ()
        return (0,)

    stage.delay_us = swap
    stage.submit("r", 10)
    stage.until(lambda: stage.traced("attempt_failed"))
    assert stage.traced("attempt_failed")[0][2].data["reason"] == "source_layout_mismatch"


def test_a_copy_of_history_between_two_splits_is_refused_by_name():
    stage = staged(2, 3, cache=CacheConfig(milestone=Milestone.BIDIRECTIONAL))
    request = stage.submit("r", 16)
    stage.serve()
    asked = stage.kinds(Reserve)[0]
    copy = replace(
        asked,
        fence=replace(asked.fence, request_id="copy", reservation_id=0),
        request=replace(request, request_id="copy", prompt_token_ids=tuple(range(900, 916))),
        purpose=Purpose.INSERT,
    )
    stage.sent.clear()
    stage.hand(stage.destination.worker_id, copy)
    denied = stage.kinds(Denied)
    assert [d.reason for d in denied] == ["pp_sizes_differ"] and not denied[0].transient


def test_the_grant_names_both_splits_and_only_where_they_differ():
    for source, destination in ((2, 3), (2, 2)):
        stage = staged(source, destination)
        stage.submit("r", 10)
        stage.serve()
        unequal = PipelineSizes(source=source, destination=destination)
        expected = unequal if source != destination else None
        assert stage.kinds(Reserved)[0].grant.pp_sizes == expected
