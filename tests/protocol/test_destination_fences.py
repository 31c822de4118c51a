"""One honest handoff, and every way in which one field of it can be wrong (0x06E)."""

from collections.abc import Callable

import pytest

from baton.core.ids import Direction, Schedule
from baton.core.manifest import HandoffManifest, SealedChunk
from baton.core.messages import Seal
from tests.protocol.destination_worker import DestinationWorker
from tests.protocol.handoff import KIB, replace

Mutation = Callable[[HandoffManifest], HandoffManifest]


def fence(**changes: object) -> Mutation:
    return lambda m: replace(
        m, request=replace(m.request, fence=replace(m.request.fence, **changes))
    )


def interval(**changes: object) -> Mutation:
    return lambda m: replace(m, request=replace(m.request, **changes))


def model(**changes: object) -> Mutation:
    return lambda m: replace(m, model=replace(m.model, **changes))


def layout(**changes: object) -> Mutation:
    """Bytes decoded another way, with a digest that fits them."""

    def mutate(m: HandoffManifest) -> HandoffManifest:
        other = replace(m.tensor.layout, **changes)
        return replace(m, tensor=replace(m.tensor, layout=other, layout_digest=other.digest))

    return mutate


def tensor(**changes: object) -> Mutation:
    return lambda m: replace(m, tensor=replace(m.tensor, **changes))


def placement(**changes: object) -> Mutation:
    return lambda m: replace(m, placement=replace(m.placement, **changes))


def chunks(change: Callable[[tuple[SealedChunk, ...]], tuple[SealedChunk, ...]]) -> Mutation:
    return lambda m: replace(m, placement=replace(m.placement, chunks=change(m.placement.chunks)))


def chunk(**changes: object) -> Mutation:
    """The last chunk described another way."""
    return chunks(lambda c: (*c[:-1], replace(c[-1], spec=replace(c[-1].spec, **changes))))


def first_token(**changes: object) -> Mutation:
    return lambda m: replace(m, first_token=replace(m.first_token, **changes))


MANIFESTS = {
    "tenant": (fence(tenant_id="t2"), "fence_mismatch"),
    "request": (fence(request_id="r2"), "fence_mismatch"),
    "older generation": (fence(generation=2), "fence_mismatch"),
    "newer generation": (fence(generation=4), "fence_mismatch"),
    "attempt": (fence(attempt=1), "fence_mismatch"),
    "source": (fence(source_id="p1"), "fence_mismatch"),
    "source epoch": (fence(source_epoch=4), "fence_mismatch"),
    "destination": (fence(destination_id="d1"), "fence_mismatch"),
    "destination epoch": (fence(destination_epoch=6), "fence_mismatch"),
    "reservation": (fence(reservation_id=12), "fence_mismatch"),
    "no reservation": (fence(reservation_id=0), "fence_mismatch"),
    "transfer id": (placement(transfer_id="r1.2"), "transfer_id_mismatch"),
    "checkpoint": (model(checkpoint_hash="other"), "model_mismatch"),
    "tokenizer": (model(tokenizer_hash="other"), "model_mismatch"),
    "adapter": (model(adapter_hash="other"), "model_mismatch"),
    "no adapter": (model(adapter_hash=""), "model_mismatch"),
    "position policy": (model(position_policy_hash="other"), "model_mismatch"),
    "mask policy": (model(mask_policy_hash="other"), "model_mismatch"),
    "K dtype": (layout(dtype_k="bfloat16"), "layout_mismatch"),
    "V dtype": (layout(dtype_v="float16"), "layout_mismatch"),
    "K/V heads": (layout(num_kv_heads=4), "layout_mismatch"),
    "head width": (layout(head_dim=32), "layout_mismatch"),
    "heads and width, same bytes": (layout(num_kv_heads=4, head_dim=8), "layout_mismatch"),
    "block size": (layout(block_size=8), "layout_mismatch"),
    "layer count": (layout(num_layers=3), "layout_mismatch"),
    "axis order": (layout(axis_order="layer,block,kv,slot,head,dim"), "layout_mismatch"),
    "tensor parallel size": (layout(tp_size=2), "layout_mismatch"),
    "pipeline parallel size": (layout(pp_size=2), "layout_mismatch"),
    "latent layout": (layout(latent_dim=8), "layout_mismatch"),
    "layout digest alone": (tensor(layout_digest="0" * 32), "layout_mismatch"),
    "layout under the right digest": (
        lambda m: tensor(layout=replace(m.tensor.layout, head_dim=32))(m),
        "layout_mismatch",
    ),
    "prompt digest": (interval(prompt_digest="0" * 32), "prompt_mismatch"),
    "token start": (interval(token_start=4), "token_start_mismatch"),
    "fewer tokens": (interval(num_tokens=7), "num_tokens_mismatch"),
    "more tokens": (interval(num_tokens=9), "num_tokens_mismatch"),
    "route epoch": (placement(route_epoch=1), "route_epoch_mismatch"),
    "direction": (placement(direction=Direction.PULL), "direction_mismatch"),
    "schedule": (placement(schedule=Schedule.REQUEST), "schedule_mismatch"),
    "missing chunk": (chunks(lambda c: c[:-1]), "chunk_set_mismatch"),
    "no chunk": (chunks(lambda c: ()), "chunk_set_mismatch"),
    "extra chunk": (
        chunks(lambda c: (*c, replace(c[0], spec=replace(c[0].spec, chunk_id=8)))),
        "chunk_set_mismatch",
    ),
    "chunk twice": (chunks(lambda c: (*c, c[0])), "chunk_set_mismatch"),
    "chunk instead of another": (chunks(lambda c: (*c[:-1], c[0])), "chunk_set_mismatch"),
    "chunks reordered": (chunks(lambda c: (c[1], c[0], *c[2:])), "chunk_set_mismatch"),
    "chunk id": (chunk(chunk_id=9), "chunk_set_mismatch"),
    "chunk bytes": (chunk(nbytes=KIB - 1), "chunk_set_mismatch"),
    "layer range": (chunk(layer_start=2), "chunk_set_mismatch"),
    "layer count of a chunk": (chunk(num_layers=2), "chunk_set_mismatch"),
    "block range": (chunk(block_start=0), "chunk_set_mismatch"),
    "block count of a chunk": (chunk(num_blocks=2), "chunk_set_mismatch"),
    "checksum": (
        chunks(lambda c: (*c[:-1], replace(c[-1], checksum=c[-1].checksum ^ 1))),
        "checksum_mismatch",
    ),
    "checksums exchanged": (
        chunks(
            lambda c: (
                replace(c[0], checksum=c[1].checksum),
                replace(c[1], checksum=c[0].checksum),
                *c[2:],
            )
        ),
        "checksum_mismatch",
    ),
    "first token index": (first_token(index=1), "first_token_index"),
    "cached tokens of the whole prompt": (
        lambda m: replace(m, num_cached_tokens=8),
        "cached_tokens",
    ),
    "negative cached tokens": (lambda m: replace(m, num_cached_tokens=-1), "cached_tokens"),
}


def test_the_honest_handoff_publishes():
    worker = DestinationWorker()
    worker.deliver_all()
    assert not worker.is_published
    worker.seal()
    assert worker.is_published
    assert worker.abort_reason == ""


def test_at_least_the_24_mutations_of_the_specification_are_covered():
    assert len(MANIFESTS) >= 24


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_wrong_in_one_field_is_refused_by_name(name):
    mutate, reason = MANIFESTS[name]
    worker = DestinationWorker()
    assert mutate(worker.manifest()) != worker.manifest()
    worker.deliver_all()
    worker.seal(mutate(worker.manifest()))
    assert not worker.is_published
    assert worker.abort_reason == reason
    assert worker.counters["validation_failures"] == 1
    worker.seal()  # an honest manifest after a refused one comes too late
    assert not worker.is_published


def test_the_display_name_of_a_model_is_no_identity():
    worker = DestinationWorker()
    worker.deliver_all()
    worker.seal(model(model="renamed")(worker.manifest()))
    assert worker.is_published


FENCES = {
    "tenant": {"tenant_id": "t2"},
    "request": {"request_id": "r2"},
    "older generation": {"generation": 2},
    "newer generation": {"generation": 4},
    "attempt": {"attempt": 1},
    "source": {"source_id": "p1"},
    "source epoch": {"source_epoch": 4},
    "destination": {"destination_id": "d1"},
    "destination epoch": {"destination_epoch": 6},
    "reservation": {"reservation_id": 12},
}


@pytest.mark.parametrize("changes", FENCES.values(), ids=FENCES)
def test_a_seal_under_another_fence_changes_nothing_and_is_counted(changes):
    worker = DestinationWorker()
    worker.deliver_all()
    worker.seal(fence=replace(worker.grant.fence, **changes))
    assert not worker.is_published
    stale = ("stale_messages", "stale_publications")
    assert sum(worker.counters.get(name, 0) for name in stale) == 1
    assert worker.node.destination.incoming["r1.3"].transfer.manifest is None
    worker.seal()
    assert worker.is_published, "the honest seal is not spoiled by it"


@pytest.mark.parametrize(("sender_id", "sender_epoch"), [("p1", 5), ("p0", 4), ("p0", 6), ("", 0)])
def test_a_seal_from_another_process_or_life_is_not_taken(sender_id, sender_epoch):
    worker = DestinationWorker()
    worker.deliver_all()
    seal = Seal(fence=worker.grant.fence, manifest=worker.manifest())
    worker.receive(sender_id, sender_epoch, seal)
    assert not worker.is_published
    worker.from_source(seal)
    assert worker.is_published


ARRIVALS = {
    "source": ({"source_id": "p1"}, "stale_chunks"),
    "source epoch": ({"source_epoch": 4}, "stale_chunks"),
    "reservation": ({"reservation_id": 12}, "stale_chunks"),
    "unknown chunk": ({"chunk_id": 8}, "unknown_chunks"),
    "negative chunk": ({"chunk_id": -1}, "unknown_chunks"),
    "short": ({"nbytes": KIB - 1}, "unknown_chunks"),
    "long": ({"nbytes": KIB + 1}, "unknown_chunks"),
}


@pytest.mark.parametrize(("changes", "counter"), ARRIVALS.values(), ids=ARRIVALS)
def test_a_chunk_wrong_in_one_field_is_not_received(changes, counter):
    worker = DestinationWorker()
    *others, last = worker.plan
    for spec in others:
        worker.arrive(spec)
        worker.read_back(spec)
    worker.seal()
    worker.arrive(last, **changes)
    assert worker.counters[counter] == 1
    assert not worker.is_published
    worker.arrive(last)
    worker.read_back(last)
    assert worker.is_published


def test_seven_of_eight_visible_chunks_are_not_published():
    worker = DestinationWorker()
    for spec in worker.plan[:-1]:
        worker.arrive(spec)
        worker.read_back(spec)
    worker.seal()
    assert not worker.is_published
    assert worker.abort_reason == ""


def test_a_received_chunk_that_is_not_visible_keeps_the_gate_shut():
    worker = DestinationWorker()
    for spec in worker.plan:
        worker.arrive(spec)
    for spec in worker.plan[:-1]:
        worker.read_back(spec)
    worker.seal()
    assert not worker.is_published
    worker.read_back(worker.plan[-1])
    assert worker.is_published


def test_bytes_that_changed_between_source_and_memory_are_found_by_the_read_back():
    worker = DestinationWorker()
    for spec in worker.plan:
        worker.arrive(spec)
        worker.read_back(spec, checksum=0 if spec.chunk_id == 3 else 0x1000 + spec.chunk_id)
    worker.seal()
    assert not worker.is_published
    assert worker.abort_reason == "checksum_mismatch"


def test_a_read_back_that_failed_aborts():
    worker = DestinationWorker()
    worker.arrive(worker.plan[0])
    worker.read_back(worker.plan[0], error="EIO")
    worker.seal()
    assert not worker.is_published
    assert worker.abort_reason == "read_back_failed: EIO"


def test_a_duplicate_chunk_with_other_bytes_aborts_and_with_the_same_is_idempotent():
    worker = DestinationWorker()
    worker.arrive(worker.plan[0])
    worker.arrive(worker.plan[0])
    assert worker.counters["duplicate_chunks"] == 1
    worker.arrive(worker.plan[0], checksum=1)
    assert worker.counters["corrupt_chunks"] == 1
    worker.deliver_all()
    worker.seal()
    assert not worker.is_published
    assert worker.abort_reason == "duplicate_with_other_bytes"


def test_a_second_manifest_that_differs_aborts():
    worker = DestinationWorker()
    worker.seal()
    worker.seal(first_token(token_id=56)(worker.manifest()))
    worker.deliver_all()
    assert not worker.is_published
    assert worker.abort_reason == "second_manifest_differs"


def test_a_repeated_seal_is_acknowledged_again_and_published_once():
    worker = DestinationWorker()
    worker.deliver_all()
    for _ in range(3):
        worker.seal()
    kinds = [type(message).__name__ for message in worker.sent("p0")]
    assert kinds.count("SourceRelease") == 3
    assert [type(m).__name__ for m in worker.sent("router")].count("Published") == 1
    assert worker.traces.count("admitted") == 1
