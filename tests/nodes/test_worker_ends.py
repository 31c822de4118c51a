"""Words about another life or reservation, and the last accounts that a worker gives."""

import pytest

from baton.config import CacheConfig, WorkerConfig
from baton.core import events
from baton.core.cache import Milestone
from baton.core.effects import CancelIo, DigestKV
from baton.core.ids import Direction, Schedule
from baton.core.messages import Cancel, Envelope, PeerDown, Renew, Reserve
from baton.core.request import SamplingParams
from baton.nodes.reservation import reserve
from baton.nodes.sequence import Sequence
from baton.protocol.destination import DestinationTransfer
from baton.protocol.nonces import IssuerClock
from baton.sim.observer import Observer
from tests.protocol.destination_worker import DestinationWorker
from tests.protocol.handoff import FENCE, REQUEST, replace
from tests.protocol.source_worker import SourceWorker
from tests.stage import Stage, uneven_plan

# -- lives and reservations ------------------------------------------------------------------------


@pytest.mark.parametrize("epochs_ago", [1, 0])
def test_only_the_death_of_the_right_life_of_a_destination_ends_a_job(epochs_ago):
    worker = SourceWorker()
    worker.prefill()
    over = FENCE.destination_epoch - epochs_ago
    worker.from_router(PeerDown(worker_id=FENCE.destination_id, epoch=over))
    assert worker.job is not None and worker.job.is_aborting == (epochs_ago == 0)


@pytest.mark.parametrize("epochs_ago", [1, 0])
def test_only_the_death_of_the_right_life_of_a_source_ends_a_reservation(epochs_ago):
    worker = DestinationWorker()
    over = FENCE.source_epoch - epochs_ago
    worker.from_router(PeerDown(worker_id=FENCE.source_id, epoch=over, ended=True))
    incoming = worker.node.destination.incoming[FENCE.transfer_id]
    assert incoming.transfer.remote_quiesced == (epochs_ago == 0)
    assert bool(incoming.transfer.abort_reason) == (epochs_ago == 0)


def test_a_cancel_of_another_reservation_leaves_the_job_alone():
    worker = SourceWorker()
    worker.prefill()
    worker.from_router(Cancel(fence=replace(FENCE, reservation_id=99), reason="superseded"))
    assert worker.job is not None and not worker.job.is_aborting
    assert worker.node.counters["stale_messages"] == 1
    worker.from_router(Cancel(fence=FENCE, reason="superseded"))
    assert worker.job is not None and worker.job.is_aborting


def test_a_cancel_of_another_reservation_leaves_the_reservation_alone():
    worker = DestinationWorker()
    other = replace(worker.grant.fence, reservation_id=99)
    worker.from_router(Cancel(fence=other, reason="superseded"))
    assert worker.abort_reason == "" and not any(isinstance(e, CancelIo) for e in worker.effects)
    worker.deliver_all()
    worker.seal()
    assert worker.is_published


@pytest.mark.parametrize("is_own", [True, False])
def test_a_lease_is_renewed_under_its_own_fence_only(is_own):
    worker = DestinationWorker()
    own = worker.grant.fence
    lease_us = worker.node.context.transfer.lease_ms * 1000
    message = Renew(fences=(own if is_own else replace(own, reservation_id=99),))
    sender = {"sender_id": own.source_id, "sender_epoch": own.source_epoch}
    word = events.Received(envelope=Envelope(message=message, **sender))
    worker.node.handle(word, lease_us)
    worker.node.handle(events.Tick(), lease_us + 2000)
    assert worker.node.counters["expired_leases"] == (not is_own)


# -- how much is reserved, and how long a right is refused --------------------------------------


def test_growth_is_reserved_for_the_tokens_that_are_left_only():
    worker = DestinationWorker()
    request = replace(
        REQUEST, request_id="r2", sampling=SamplingParams(max_tokens=8), prompt_token_ids=(1,) * 8
    )
    message = Reserve(
        fence=replace(FENCE, request_id="r2", reservation_id=0),
        request=request,
        output_token_ids=(1, 2, 3, 4, 5, 6, 7),
        direction=Direction.PUSH,
        schedule=Schedule.LAYER,
        route_epoch=2,
    )
    transfer = reserve(worker.node.context, message, 1, is_short=False)
    assert isinstance(transfer, DestinationTransfer)
    assert len(transfer.block_table) == 4, "15 rows and one more: the last token needs no fifth"


def test_another_clock_is_past_a_time_only_by_more_than_the_skew():
    clock = IssuerClock(skew_us=50, drift_ppm=0)
    clock.sample(1_000, now_us=7)
    assert not clock.is_past(1_000, 7 + 50)
    assert clock.is_past(1_000, 7 + 51)


# -- accounts --------------------------------------------------------------------------------------


class _Digests(Observer):
    """Remembers for how many rows a digest was asked for."""

    def __init__(self) -> None:
        self.num_tokens: list[int] = []

    def handled(self, worker, event, effects):
        self.num_tokens += [e.num_tokens for e in effects if isinstance(e, DigestKV)]


def test_a_sequence_cancelled_while_it_recomputes_is_digested_as_far_as_it_is_computed():
    """The checkers compare every digested row with the truth."""
    seen = _Digests()
    tight = WorkerConfig(block_size=4, max_batch_tokens=4, growth_tokens=0)
    bare = CacheConfig(milestone=Milestone.NONE)
    stage = Stage(uneven_plan(num_blocks=10, worker=tight, cache=bare), observers=[seen])
    for number in range(3):
        stage.submit(f"r{number}", 10, first=20 * number, max_tokens=14, verify=True)
    recomputing: list[Sequence] = []

    def is_recomputing() -> bool:
        live = stage.destination.node.decode.live.values()
        recomputing[:] = [
            s for s in live if s.block_table and s.num_computed > 0 and s.num_pending > 4
        ]
        return bool(recomputing)

    stage.until(is_recomputing)
    stage.world.cancel(recomputing[0].request.request_id, "disconnect")
    stage.finish()
    num_tokens = len(recomputing[0].tokens)
    assert len(seen.num_tokens) == 3 and min(seen.num_tokens) < num_tokens - 1
