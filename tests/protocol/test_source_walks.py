"""SourceTransfer under any order of readiness, completion, credit and abort."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton.core.ids import Direction, Schedule
from baton.core.machine import IllegalTransition
from baton.core.manifest import ChunkGeometry
from baton.protocol.chunk import ChunkState
from baton.protocol.source_copy import CopyState
from tests.protocol import handoff
from tests.protocol.handoff import GRANT, KIB, LAYOUT, checksum, replace


class SourceWalk(RuleBasedStateMachine):
    """Random calls; the model is the set of chunks sent and of credit that came back."""

    def __init__(self) -> None:
        super().__init__()
        self.source = handoff.source_transfer(replace(GRANT, credit_nbytes=3 * KIB))
        self.sent: list[int] = []
        self.returned: set[int] = set()
        self.ready = [0] * LAYOUT.num_layers

    @property
    def live(self) -> bool:
        return self.source.state in (CopyState.COMPUTING, CopyState.HELD)

    @rule(layer=st.integers(0, 3), tokens=st.integers(0, 8))
    def layer_ready(self, layer: int, tokens: int) -> None:
        if self.source.state is CopyState.COMPUTING:
            self.source.mark_ready(layer, tokens)
            self.ready[layer] = max(self.ready[layer], tokens)

    @precondition(lambda self: self.source.state is CopyState.COMPUTING)
    @rule()
    def complete(self) -> None:
        self.source.mark_complete()
        self.ready = [8] * LAYOUT.num_layers

    @precondition(lambda self: self.live)
    @rule()
    def take(self) -> None:
        for spec in self.source.take_ready():
            assert spec.chunk_id not in self.sent, "a chunk goes once"
            assert self.ready[spec.layer_start] >= (spec.block_start + 1) * LAYOUT.block_size
            self.sent.append(spec.chunk_id)

    @precondition(lambda self: self.live)
    @rule(chunk_id=st.integers(-1, 9))
    def credit_returns(self, chunk_id: int) -> None:
        before = self.source.credits.inflight_nbytes
        fresh = chunk_id in self.sent and chunk_id not in self.returned
        assert self.source.visible(chunk_id) == fresh
        assert before - self.source.credits.inflight_nbytes == fresh * KIB
        if fresh:
            self.returned.add(chunk_id)

    @precondition(lambda self: self.live)
    @rule()
    def move_ends(self) -> None:
        for chunk_id in self.sent:
            self.source.summed(chunk_id, checksum(chunk_id))

    @precondition(lambda self: self.source.state is CopyState.COMPUTING and self.source.can_seal)
    @rule()
    def seals(self) -> None:
        manifest = handoff.seal(self.source)
        assert {c.spec.chunk_id for c in manifest.placement.chunks} == set(self.sent)
        assert self.source.state is CopyState.HELD

    @precondition(lambda self: self.source.state is CopyState.HELD)
    @rule()
    def releases(self) -> None:
        self.source.release()
        self.assert_all_credit_is_back()

    @precondition(lambda self: self.live)
    @rule()
    def aborts(self) -> None:
        owned = self.source.credits.inflight_nbytes
        self.source.abort("cancelled")
        assert self.source.credits.inflight_nbytes == owned, "I/O may still own the buffers"
        with pytest.raises(AssertionError):
            self.source.take_ready()

    @precondition(lambda self: self.source.state is CopyState.FENCING)
    @rule()
    def quiesces(self) -> None:
        self.source.finish_abort()
        self.assert_all_credit_is_back()

    def assert_all_credit_is_back(self) -> None:
        assert self.source.credits.inflight_nbytes == 0
        assert all(machine.ended for machine in self.source.chunks.values())
        assert not any(self.source.visible(chunk_id) for chunk_id in self.sent)
        assert self.source.credits.inflight_nbytes == 0

    @invariant()
    def credit_is_bounded_and_accounted(self) -> None:
        credits = self.source.credits
        assert 0 <= credits.inflight_nbytes <= credits.capacity_nbytes
        if not self.source.copy.ended:
            assert credits.inflight_nbytes == (len(self.sent) - len(self.returned)) * KIB


SourceWalk.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSourceWalk = SourceWalk.TestCase


def test_a_copy_cannot_be_released_before_it_is_sealed():
    source = handoff.source_transfer()
    with pytest.raises(IllegalTransition):
        source.release()
    assert source.state is CopyState.COMPUTING


def test_a_released_copy_cannot_be_aborted_and_an_abort_happens_once():
    source = handoff.source_transfer()
    handoff.seal(source)
    source.release()
    with pytest.raises(IllegalTransition):
        source.abort("late")
    other = handoff.source_transfer()
    other.abort("first")
    with pytest.raises(IllegalTransition):
        other.abort("second")
    assert other.abort_reason == "first"


def test_sealing_needs_every_checksum_and_every_row():
    source = handoff.source_transfer()
    for spec in source.plan:
        assert not source.can_seal
        source.summed(spec.chunk_id, 0)
    assert not source.can_seal, "the prompt is not computed yet"
    source.mark_complete()
    assert source.can_seal


def test_a_request_schedule_sends_nothing_before_the_whole_prompt_is_computed():
    source = handoff.source_transfer(replace(GRANT, schedule=Schedule.REQUEST))
    for layer in range(LAYOUT.num_layers):
        source.mark_ready(layer, 8)
    assert source.take_ready() == []
    source.mark_complete()
    assert len(source.take_ready()) == 2, "the window holds two chunks"


def test_a_pull_announces_every_ready_chunk_because_credit_is_the_readers():
    source = handoff.source_transfer(replace(GRANT, direction=Direction.PULL))
    source.mark_complete()
    assert len(source.take_ready()) == 8
    assert source.credits.inflight_nbytes == 0


def test_a_reused_prefix_opens_its_gate_at_once():
    source = handoff.source_transfer(ready=4)
    assert [spec.block_start for spec in source.take_ready()] == [0, 0]


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 40))
def test_readiness_counts_rows_of_the_last_partial_block(layers, blocks, num_tokens):
    num_blocks = LAYOUT.num_blocks(num_tokens)
    grant = replace(
        GRANT,
        num_tokens=num_tokens,
        block_ids=tuple(range(num_blocks)),
        geometry=ChunkGeometry(chunk_layers=layers, chunk_blocks=blocks),
        credit_nbytes=1 << 20,
    )
    source = handoff.source_transfer(grant)
    for layer in range(LAYOUT.num_layers):
        source.mark_ready(layer, num_tokens - 1)
    early = source.take_ready()
    assert all((c.block_start + c.num_blocks) * 4 <= num_tokens - 1 for c in early)
    for layer in range(LAYOUT.num_layers):
        source.mark_ready(layer, num_tokens)
    late = source.take_ready()
    assert sorted(c.chunk_id for c in [*early, *late]) == [c.chunk_id for c in source.plan]
    assert all(machine.state is ChunkState.SENT for machine in source.chunks.values())


def test_a_chunk_of_several_layers_waits_for_the_last_of_them():
    geometry = ChunkGeometry(chunk_layers=3, chunk_blocks=2)
    source = handoff.source_transfer(replace(GRANT, geometry=geometry, credit_nbytes=64 * KIB))
    for layer in (0, 2, 3):
        source.mark_ready(layer, 8)
        taken = [spec.layer_start for spec in source.take_ready()]
        assert taken == ([3] if layer == 3 else [])
    source.mark_ready(0, 1)  # an older report does not take rows back
    source.mark_ready(1, 8)
    assert [(s.layer_start, s.num_layers) for s in source.take_ready()] == [(0, 3)]
