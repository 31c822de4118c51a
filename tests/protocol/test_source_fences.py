"""The source gives up its copy on proof of publication, or after a fenced abort; never else."""

from collections.abc import Callable

import pytest

from baton.core.ids import Fence
from baton.core.messages import (
    AbortTransfer,
    CreditReturn,
    Denied,
    Message,
    Prefill,
    Renew,
    Seal,
    SourceRelease,
    TransferQuiesced,
)
from baton.protocol.source_copy import CopyState
from tests.protocol.handoff import FENCE, GRANT, KIB, REQUEST, replace
from tests.protocol.source_worker import SourceWorker


def sealed() -> SourceWorker:
    """A source that has sent everything, got its credit back, and holds the copy."""
    worker = SourceWorker()
    worker.prefill()
    worker.computed()
    for number in range(8):
        chunk_id = worker.writes()[number]
        worker.moved(chunk_id)
        worker.from_destination(CreditReturn(fence=FENCE, chunk_ids=(chunk_id,)))
    assert worker.job is not None and worker.job.transfer is not None
    assert worker.job.transfer.state is CopyState.HELD
    return worker


def test_a_handoff_from_compute_to_release():
    worker = sealed()
    assert sorted(worker.writes()) == list(range(8)), "each chunk once"
    assert [type(m) for m in worker.sent("d0")] == [Seal]
    worker.from_destination(SourceRelease(fence=FENCE))
    assert worker.job is None
    assert worker.node.context.memory.pool.num_used == 0


def test_chunks_wait_for_their_layer_and_for_credit():
    worker = SourceWorker()
    worker.prefill()
    assert worker.writes() == []
    worker.layer_ready(0)
    assert len(worker.writes()) == 2
    worker.layer_ready(1)
    assert len(worker.writes()) == 2, "the window of 2 KiB is full"
    worker.moved(worker.writes()[0])
    assert len(worker.writes()) == 2, "moved is not visible"
    worker.from_destination(CreditReturn(fence=FENCE, chunk_ids=(worker.writes()[0],)))
    assert len(worker.writes()) == 3


def test_a_repeated_credit_return_gives_credit_once():
    worker = SourceWorker()
    worker.prefill()
    worker.computed()
    for _ in range(3):
        worker.from_destination(CreditReturn(fence=FENCE, chunk_ids=(worker.writes()[0],)))
    assert len(worker.writes()) == 3


STRANGERS = {
    "source": {"source_id": "p1"},
    "source epoch": {"source_epoch": 4},
    "destination": {"destination_id": "d1"},
    "destination epoch": {"destination_epoch": 6},
    "request": {"request_id": "r2"},
    "generation": {"generation": 2},
}
NEAR = {
    "attempt": {"attempt": 1},
    "tenant": {"tenant_id": "t2"},
    "reservation": {"reservation_id": 12},
}
MESSAGES: dict[str, Callable[[Fence], Message]] = {
    "release": lambda fence: SourceRelease(fence=fence),
    "abort": lambda fence: AbortTransfer(fence=fence, reason="late"),
    "credit": lambda fence: CreditReturn(fence=fence, chunk_ids=(0,)),
}


def assert_nothing_happens(name: str, changes: dict[str, object]) -> None:
    worker = SourceWorker()
    worker.prefill()
    worker.computed()
    assert worker.writes() == [0, 1]
    for chunk_id in (0, 1):
        worker.moved(chunk_id)
    before = len(worker.writes())
    worker.from_destination(MESSAGES[name](replace(FENCE, **changes)))
    assert worker.job is not None and worker.job.transfer is not None
    assert worker.job.transfer.state is CopyState.COMPUTING
    assert worker.job.transfer.credits.inflight_nbytes == 2 * KIB
    assert len(worker.writes()) == before


@pytest.mark.parametrize("changes", STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_about_another_handoff_or_life_changes_nothing(name, changes):
    assert_nothing_happens(name, changes)


@pytest.mark.parametrize("changes", NEAR.values(), ids=NEAR)
@pytest.mark.parametrize("name", ["abort", "credit"])
def test_a_message_that_differs_in_any_other_field_of_the_fence_changes_nothing(name, changes):
    assert_nothing_happens(name, changes)


@pytest.mark.parametrize("changes", NEAR.values(), ids=NEAR)
def test_a_copy_is_not_released_under_a_fence_that_differs(changes):
    worker = sealed()
    worker.from_destination(SourceRelease(fence=replace(FENCE, **changes)))
    assert worker.job is not None


@pytest.mark.parametrize(("sender", "epoch"), [("d1", 7), ("d0", 6), ("d0", 8)])
def test_a_release_from_another_process_or_life_is_not_taken(sender, epoch):
    worker = sealed()
    worker.receive(sender, epoch, SourceRelease(fence=FENCE))
    assert worker.job is not None
    assert worker.node.counters["stale_messages"] == 1


def test_a_release_before_the_seal_is_stale():
    worker = SourceWorker()
    worker.prefill()
    worker.computed()
    worker.from_destination(SourceRelease(fence=FENCE))
    assert worker.job is not None
    assert worker.node.counters["stale_messages"] == 1


def test_an_abort_keeps_the_blocks_until_io_and_compute_have_ended():
    worker = SourceWorker()
    worker.prefill()
    worker.layer_ready(0)
    worker.from_destination(AbortTransfer(fence=FENCE, reason="x"))
    worker.quiesced()
    assert worker.node.context.memory.pool.num_used == 2, "the batch still writes them"
    assert worker.sent("d0") == []
    worker.computed()
    assert worker.node.context.memory.pool.num_used == 0
    assert worker.sent("d0") == [TransferQuiesced(fence=FENCE)]
    assert len(worker.writes()) == 2, "nothing was sent after the abort"


def test_an_abort_of_something_unknown_is_answered_and_fences_it():
    worker = SourceWorker()
    worker.from_destination(AbortTransfer(fence=FENCE, reason="x"))
    assert worker.sent("d0") == [TransferQuiesced(fence=FENCE)]
    worker.prefill()
    assert [m.reason for m in worker.sent("router") if isinstance(m, Denied)] == [
        "stale_generation"
    ]
    assert worker.job is None


def test_a_prefill_repeated_after_the_release_writes_nothing():
    """The granted blocks may belong to another request by now."""
    worker = sealed()
    worker.from_destination(SourceRelease(fence=FENCE))
    written = len(worker.writes())
    worker.prefill()
    assert worker.job is None and worker.num_batches() == 1
    assert len(worker.writes()) == written


def test_a_repeated_prefill_computes_once():
    worker = SourceWorker()
    worker.prefill()
    worker.prefill()
    assert worker.num_batches() == 1 and len(worker.node.source.jobs) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"grant": replace(GRANT, num_tokens=9)}, "grant_mismatch"),
        ({"grant": replace(GRANT, fence=replace(FENCE, generation=4))}, "grant_mismatch"),
        ({"output_token_ids": (1,)}, "grant_mismatch"),
        ({"fence": replace(FENCE, destination_epoch=8)}, "destination_unknown"),
        ({"fence": replace(FENCE, destination_id="d9")}, "destination_unknown"),
    ],
    ids=["tokens", "generation", "outputs", "destination epoch", "destination"],
)
def test_a_prefill_that_does_not_fit_its_grant_is_denied(changes, reason):
    worker = SourceWorker()
    asked = Prefill(fence=FENCE, request=REQUEST, output_token_ids=(), grant=GRANT)
    worker.from_router(replace(asked, **changes))
    assert [m.reason for m in worker.sent("router") if isinstance(m, Denied)] == [reason]
    assert worker.job is None and worker.num_batches() == 0


def test_a_renewal_names_every_transfer_it_extends():
    worker = sealed()
    worker.from_destination(Renew(fences=(FENCE, replace(FENCE, source_epoch=4))))
    assert worker.node.counters["stale_messages"] == 1
