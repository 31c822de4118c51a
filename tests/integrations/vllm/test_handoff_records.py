"""What a destination remembers of loads that have ended, and answers when it is asked."""

import pytest
from msgspec.structs import replace

from baton.core.ids import Direction
from baton.integrations.vllm.messages import MAX_ASKED, HandoffQuestion
from baton.integrations.vllm.records import MAX_RECORDS, Records
from tests.integrations.vllm.pair import TOKENS, World
from tests.integrations.vllm.servers import Servers

BLOCK_NBYTES = 3 * 2 * 32 * 2 * 4 * 4
"""Three layers, two heads, 32 rows of keys and values, four floats."""


def only(world):
    (record,) = world.d.node.records.of(["r1.1"])
    return record


def test_a_pull_is_remembered_step_by_step():
    world = World()
    ticket = world.ticket()
    world.load(ticket)
    asked_us = world.now_us
    assert world.d.node.records.of(["r1.1"]) == [], "it has not ended"
    world.is_parked = True
    world.now_us += 1_000
    world.hold(ticket)
    world.now_us += 2_000
    world.let_go()
    world.require_loaded()
    record = only(world)
    assert (record.asked_us, record.reserved_us, record.claimed_us) == (asked_us,) * 3
    assert record.first_byte_us == record.all_visible_us == asked_us + 3_000
    assert record.validated_us == record.ended_us == asked_us + 3_000 and not record.reason
    assert record.fence.reservation_id and replace(record.fence, reservation_id=0) == ticket.fence
    assert record.num_tokens == len(TOKENS) and record.num_blocks == 3
    assert record.logical_nbytes + record.padding_nbytes == 3 * BLOCK_NBYTES
    assert record.logical_nbytes * 96 == 70 * 3 * BLOCK_NBYTES
    assert record.arrived_nbytes == 3 * BLOCK_NBYTES and not record.duplicate_nbytes
    assert record.num_legs == 1 and record.num_layers == 3 and record.num_chunks > 1


def test_a_push_is_visible_before_its_manifest_comes():
    world = World()
    ticket = world.ticket(Direction.PUSH)
    world.load(ticket)
    world.stream(ticket, 0, 70, (3, 5, 4))
    for layer in range(3):
        world.now_us += 1_000
        world.layer(layer)
    world.step_end()
    world.now_us += 5_000
    world.hold(ticket)
    record = only(world)
    assert record.reserved_us < record.first_byte_us < record.all_visible_us
    assert record.all_visible_us + 5_000 == record.validated_us == record.ended_us


@pytest.mark.parametrize("is_met", [True, False])
def test_a_load_that_failed_says_why_and_what_it_had_moved(is_met):
    world = World()
    ticket = world.ticket()
    if is_met:
        world.flip = True
        world.load(ticket)
        world.hold(ticket)
    else:
        world.kill(world.p)
        world.load(ticket)
    record = only(world)
    assert record.reason == world.failure()
    if is_met:
        assert record.reason == "checksum_mismatch" and not record.validated_us
        assert record.arrived_nbytes == 3 * BLOCK_NBYTES
    else:
        assert record.fence == ticket.fence and not record.reserved_us
        assert record.arrived_nbytes == record.num_chunks == 0


def test_what_was_said_again_is_counted():
    world = World()
    ticket = world.ticket()
    lost = []

    def lose(_, message):
        is_claim = type(message).__name__ == "Claim" and len(lost) < 2
        lost.extend([1] * is_claim)
        return is_claim

    world.lost = lose
    world.hold(ticket)
    world.load(ticket)
    world.run(3)
    assert only(world).num_repeats == 2


def test_records_are_bounded_and_the_oldest_goes_first():
    world = World()
    ticket = world.ticket()
    world.hold(ticket)
    world.load(ticket)
    record, records = only(world), Records()
    for index in range(MAX_RECORDS + 10):
        records.keep(replace(record, fence=replace(record.fence, request_id=f"q{index}")))
    assert len(records) == MAX_RECORDS
    assert not records.of(["q9.1"]) and len(records.of(["q10.1", "q1033.1", "unknown"])) == 2


@pytest.mark.parametrize(("source_tp", "destination_tp", "num_legs"), [(4, 2, 2), (2, 4, 1)])
def test_every_leg_of_a_rank_has_a_record(source_tp, destination_tp, num_legs):
    world = Servers(source_tp, destination_tp, 4)
    ticket = world.ticket()
    world.hold(ticket)
    world.load(ticket)
    for side in world.d:
        question = HandoffQuestion(transfer_ids=("r1.1",))
        said = side.legs.answer(question, "here", world.now_us)
        assert (said.host, said.now_us) == ("here", world.now_us)
        assert {(one.rank, one.num_legs) for one in said.records} == {(side.info.rank, num_legs)}
        assert len(said.records) == num_legs
    crowd = HandoffQuestion(transfer_ids=("no",) * MAX_ASKED + ("r1.1",))
    assert world.d[0].legs.answer(crowd, "here", 0).records == ()
