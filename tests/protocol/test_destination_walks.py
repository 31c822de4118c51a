"""DestinationTransfer under any order of arrival, read-back, seal and abort."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton.core.ids import Direction
from baton.core.machine import IllegalTransition
from baton.protocol.destination import Arrival
from baton.protocol.transfer import TransferState
from tests.protocol import handoff
from tests.protocol.handoff import FENCE, GRANT, KIB, checksum, replace

OPEN = (TransferState.RESERVED, TransferState.TRANSFERRING)


class DestinationWalk(RuleBasedStateMachine):
    """Random calls; the model is which chunks were received and which were read back."""

    def __init__(self) -> None:
        super().__init__()
        self.transfer = handoff.destination_transfer()
        self.received: set[int] = set()
        self.visible: set[int] = set()
        self.num_duplicates = 0

    @property
    def open(self) -> bool:
        return self.transfer.state in OPEN

    @rule(chunk_id=st.integers(-1, 9), nbytes=st.sampled_from([KIB, KIB, KIB, KIB - 1]))
    def arrives(self, chunk_id: int, nbytes: int) -> None:
        state = self.transfer.state
        arrival = self.transfer.arrive(chunk_id, nbytes, checksum(chunk_id))
        if state not in OPEN:
            assert arrival is Arrival.STALE
        elif chunk_id not in range(8) or nbytes != KIB:
            assert arrival is Arrival.UNKNOWN
            assert self.transfer.state is state
        elif chunk_id in self.received:
            assert arrival is Arrival.DUPLICATE
            self.num_duplicates += 1
        else:
            assert arrival is Arrival.NEW
            assert self.transfer.state is TransferState.TRANSFERRING
            self.received.add(chunk_id)

    @rule(chunk_id=st.integers(0, 7))
    def arrives_again_with_other_bytes(self, chunk_id: int) -> None:
        if self.open and chunk_id in self.received:
            arrival = self.transfer.arrive(chunk_id, KIB, checksum(chunk_id) + 1)
            assert arrival is Arrival.CORRUPT
            self.num_duplicates += 1

    @precondition(lambda self: self.open)
    @rule(chunk_id=st.integers(0, 7))
    def is_read_back(self, chunk_id: int) -> None:
        if chunk_id in self.received - self.visible:
            assert self.transfer.see(chunk_id, checksum(chunk_id)).chunk_id == chunk_id
            self.visible.add(chunk_id)
        else:  # before it arrived, or a second time
            with pytest.raises(IllegalTransition):
                self.transfer.see(chunk_id, checksum(chunk_id))

    @precondition(lambda self: self.open)
    @rule(count=st.integers(1, 8))
    def several_are_delivered(self, count: int) -> None:
        for spec in self.transfer.plan[:count]:
            self.arrives(spec.chunk_id, KIB)
            self.is_read_back(spec.chunk_id)

    @precondition(lambda self: self.open and self.transfer.all_visible)
    @rule(publish=st.booleans())
    def publishes(self, publish: bool) -> None:
        self.transfer.manifest = handoff.seal(handoff.source_transfer())
        assert self.transfer.defect() == ""
        self.transfer.validate()
        if publish:
            entry = self.transfer.published()
            assert (entry.block_ids, entry.num_tokens) == ((40, 41, 42), 8)
            assert (entry.transfer_id, entry.generation) == ("r1.3", 3)

    @precondition(lambda self: len(self.visible) < 8)
    @rule()
    def cannot_publish_with_a_chunk_missing(self) -> None:
        state = self.transfer.state
        with pytest.raises((AssertionError, IllegalTransition)):
            self.transfer.validate()
        with pytest.raises(IllegalTransition):
            self.transfer.published()
        assert self.transfer.state is state

    @precondition(lambda self: len(self.received) > 2)
    @rule()
    def aborts(self) -> None:
        if self.transfer.state in (*OPEN, TransferState.VALIDATED):
            self.transfer.abort("cancelled")
            assert self.transfer.state is TransferState.ABORTING
            assert self.transfer.abort_reason == "cancelled"
            return
        reason, state = self.transfer.abort_reason, self.transfer.state
        with pytest.raises(IllegalTransition):
            self.transfer.abort("again")
        assert (self.transfer.abort_reason, self.transfer.state) == (reason, state)

    @precondition(lambda self: self.transfer.state is TransferState.ABORTING)
    @rule(local=st.booleans(), remote=st.booleans())
    def quiesces(self, local: bool, remote: bool) -> None:
        self.transfer.local_quiesced |= local
        self.transfer.remote_quiesced |= remote
        if self.transfer.quiesced:
            self.transfer.finish_abort()
            assert self.transfer.state is TransferState.ABORTED
        else:
            with pytest.raises(AssertionError):
                self.transfer.finish_abort()

    @invariant()
    def visible_chunks_are_counted_once(self) -> None:
        assert self.transfer.num_visible == len(self.visible) <= len(self.received)
        assert self.transfer.all_visible == (len(self.visible) == 8)
        assert self.transfer.ledger.duplicate_nbytes == self.num_duplicates * KIB


DestinationWalk.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestDestinationWalk = DestinationWalk.TestCase


def test_a_duplicate_with_the_same_bytes_is_idempotent_and_with_others_is_corruption():
    transfer = handoff.destination_transfer()
    assert transfer.arrive(0, KIB, 1) is Arrival.NEW
    assert transfer.arrive(0, KIB, 1) is Arrival.DUPLICATE
    assert transfer.arrive(0, KIB, 2) is Arrival.CORRUPT
    transfer.see(0, 1)
    assert transfer.arrive(0, KIB, 2) is Arrival.CORRUPT, "after it was seen, too"


def test_an_aborted_transfer_cancels_what_is_not_visible_and_takes_nothing_more():
    transfer = handoff.destination_transfer()
    handoff.deliver(transfer, transfer.plan[0])
    transfer.arrive(1, KIB, checksum(1))
    transfer.abort("lease")
    assert transfer.arrive(2, KIB, checksum(2)) is Arrival.STALE
    with pytest.raises(IllegalTransition):
        transfer.see(1, checksum(1))
    assert transfer.num_visible == 1


def test_a_published_transfer_cannot_be_aborted():
    transfer = handoff.complete_destination()
    transfer.validate()
    assert transfer.published() == transfer.entry()
    assert transfer.entry().block_ids == (40, 41, 42), "growth blocks included"
    with pytest.raises(IllegalTransition):
        transfer.abort("too late")
    assert transfer.state is TransferState.PUBLISHED


def test_a_pull_orders_each_chunk_once():
    transfer = handoff.destination_transfer(replace(GRANT, direction=Direction.PULL))
    assert transfer.is_declared(0)
    transfer.sent(0)
    assert not transfer.is_declared(0)
    with pytest.raises(IllegalTransition):
        transfer.sent(0)
    assert transfer.arrive(0, KIB, checksum(0)) is Arrival.NEW
    assert not transfer.is_declared(99)


def test_a_colocated_handoff_has_no_chunks_and_moves_no_bytes():
    fence = replace(FENCE, source_id="d0", source_epoch=7)
    transfer = handoff.destination_transfer(replace(GRANT, fence=fence))
    assert transfer.plan == () and transfer.all_visible
    assert transfer.ledger.physical_nbytes == 0


def test_a_validated_transfer_may_still_be_aborted():
    transfer = handoff.complete_destination()
    transfer.validate()
    transfer.abort("stale_publication")
    assert transfer.state is TransferState.ABORTING


def test_blocks_of_a_chunk_are_the_granted_ones_in_token_order():
    transfer = handoff.destination_transfer()
    assert {transfer.blocks_of(spec) for spec in transfer.plan} == {(40,), (41,)}
    assert all(transfer.blocks_of(s) == (40 + s.block_start,) for s in transfer.plan)
    assert len({s.chunk_id for s in transfer.plan}) == 8
