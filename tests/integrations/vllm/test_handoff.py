"""The transaction between two connectors: moved exactly, published once, or quiet and told."""

import pytest
from msgspec.structs import replace

from baton.core.ids import Direction
from baton.core.messages import (
    AbortTransfer,
    Seal,
    SourceFailed,
    SourceRelease,
    TransferQuiesced,
)
from baton.integrations.vllm.messages import Claim, Claimed
from baton.integrations.vllm.orders import AbortHold, AbortLoad, Drop, Watch
from tests.integrations.vllm.members import FACTS, info
from tests.integrations.vllm.pair import HELD, World

PULL, PUSH = Direction.PULL, Direction.PUSH


def push(world, ticket, *, finish=True):
    """The prompt in two chunks of 40 and 30 rows, layer by layer."""
    for start, end, blocks in ((0, 40, (3, 5)), (40, 70, (3, 5, 4))):
        world.stream(ticket, start, end, blocks)
        for layer in range(3):
            world.layer(layer)
        world.step_end()
    if finish:
        world.hold(ticket)


def hand_over(world, ticket):
    if ticket.direction is PULL:
        world.hold(ticket)
        world.load(ticket)
    else:
        world.load(ticket)
        push(world, ticket)


@pytest.mark.parametrize("direction", [PULL, PUSH])
def test_every_block_is_published_and_the_source_lets_go(direction):
    world = World()
    hand_over(world, world.ticket(direction))
    world.require_loaded()
    assert world.p.ended == HELD
    world.require_nothing_held()


def test_a_prompt_is_held_until_its_load_is_published():
    world = World()
    world.is_parked = True
    hand_over(world, world.ticket(PULL))  # the seal is there before the chunks
    assert world.p.ended == [] and world.d.ended == []
    world.let_go()
    world.require_loaded()
    assert world.p.ended == HELD


@pytest.mark.parametrize("direction", [PULL, PUSH])
def test_only_missing_blocks_move(direction):
    world = World()
    ticket = world.ticket(direction)
    before = world.d.block(8)
    if direction is PULL:
        world.hold(ticket)
    world.load(ticket, blocks=(2, 11), start=32, visible=(8,))
    if direction is PUSH:
        push(world, ticket)
    world.require_loaded(pairs=((5, 2), (4, 11)))
    assert world.d.block(8) == before
    world.require_nothing_held()


def test_a_claim_may_come_before_its_prompt_and_a_push_after_its_claim():
    world = World()
    ticket = world.ticket(PULL)
    world.load(ticket)
    assert world.d.ended == [] and world.p.node.status().waiting_claims == 1
    world.hold(ticket)
    world.require_loaded()
    other = World()
    ticket = other.ticket(PUSH)
    push(other, ticket)
    assert other.p.ended == []
    other.load(ticket)
    other.require_loaded()
    other.require_nothing_held()


def test_layers_move_while_later_ones_are_computed():
    world = World()
    ticket = world.ticket(PUSH)
    world.load(ticket)
    world.stream(ticket, 0, 70, (3, 5, 4))
    world.layer(0)
    (loading,) = world.d.node.loads.loads.values()
    assert loading.transfer.num_visible == 3  # blocks, of one layer of three
    assert world.d.ended == []


@pytest.mark.parametrize("direction", [PULL, PUSH])
@pytest.mark.parametrize("kind", [Claim, Claimed, Seal, SourceRelease])
def test_a_lost_message_is_said_again(direction, kind):
    world = World()
    lost = []

    def lose(sender, message):
        if isinstance(message, kind) and not lost:
            lost.append(message)
            return True
        return False

    world.lost = lose
    hand_over(world, world.ticket(direction))
    world.run(2)
    assert lost
    world.require_loaded()
    assert world.p.ended == HELD
    world.require_nothing_held()


@pytest.mark.parametrize("direction", [PULL, PUSH])
def test_a_flipped_bit_is_refused_and_the_source_freed(direction):
    world = World()
    world.flip = True
    hand_over(world, world.ticket(direction))
    world.run(1)
    assert world.failure() == "checksum_mismatch"
    assert world.p.ended == HELD
    world.require_nothing_held()


@pytest.mark.parametrize("direction", [PULL, PUSH])
def test_an_aborted_request_is_quiet_before_vllm_hears_of_it(direction):
    world = World()
    world.is_parked = True
    hand_over(world, world.ticket(direction))
    assert world.d.ended == []
    lose = [True]
    world.lost = lambda sender, message: isinstance(message, TransferQuiesced) and lose[0]
    world.order(world.d, AbortLoad(vllm_id="d-req"))
    if direction is PUSH:
        assert world.d.ended == []  # the source may still write
        lose[0] = False
        world.run(1)
    assert world.failure() == "request_aborted"
    world.run(1)
    assert world.p.ended == HELD
    world.require_nothing_held()


def test_an_aborted_hold_is_quiet_before_vllm_hears_of_it():
    world = World()
    late = []
    world.cancel = lambda side, order: late.append((side, order))
    ticket = world.ticket(PUSH)
    world.load(ticket)
    world.stream(ticket, 0, 40, (3, 5))
    world.order(world.p, AbortHold(vllm_id="p-req", reason="prefill_aborted", is_awaited=True))
    assert world.p.ended == []  # a copy that runs may still read
    for side, order in late:
        World.cancel(world, side, order)
    world.settle()
    assert world.p.ended == HELD
    assert world.failure() == "prefill_aborted"


@pytest.mark.parametrize("direction", [PULL, PUSH])
def test_a_dead_source_fails_the_load_at_once(direction):
    world = World()
    world.is_parked = True
    hand_over(world, world.ticket(direction))
    world.kill(world.p)
    assert world.failure() == "source_lost"
    world.require_nothing_held()


@pytest.mark.parametrize("direction", [PULL, PUSH])
def test_a_dead_destination_frees_the_source(direction):
    world = World()
    world.is_parked = True
    hand_over(world, world.ticket(direction))
    world.kill(world.d)
    assert world.p.ended == HELD
    world.require_nothing_held()


def test_a_partitioned_source_stops_by_itself_before_quarantine_ends():
    world = World()
    world.is_parked = True
    hand_over(world, world.ticket(PUSH))
    world.lost = lambda sender, message: True
    world.order(world.d, AbortLoad(vllm_id="d-req"))
    world.run(11)
    assert world.d.ended == [] and world.p.ended == HELD  # its lease ran out, and with it its right
    world.run(6)
    assert world.failure() == "request_aborted"
    assert world.d.node.status().counters["quarantines_by_time"] == 1


def test_a_silent_pair_ends_by_leases():
    world = World()
    world.is_parked = True
    hand_over(world, world.ticket(PULL))
    world.lost = lambda sender, message: True
    world.run(30)
    assert world.failure() == "source_silent"
    assert world.p.ended == HELD
    world.require_nothing_held()


def test_leases_are_renewed_in_both_directions():
    for direction in (PULL, PUSH):
        world = World()
        world.is_parked = True
        hand_over(world, world.ticket(direction))
        world.run(30)
        assert world.d.ended == [] and world.p.ended == []
        world.let_go()
        world.run(1)
        world.require_loaded()


def test_nothing_outlives_its_deadline():
    world = World()
    world.is_parked = True
    hand_over(world, world.ticket(PULL, deadline_ms=20_000))
    world.run(25)
    assert world.failure() in ("deadline", "source_lease_expired")
    world.require_nothing_held()


def test_a_hold_that_nobody_claims_expires():
    world = World()
    world.hold(world.ticket(PULL, deadline_ms=3_000))
    world.run(2.8)
    assert world.p.ended == []
    world.run(0.4)
    assert world.p.ended == HELD
    world.load(world.ticket(PULL))
    assert world.failure() == "over"


def test_a_prompt_that_waits_for_room_keeps_its_source_and_may_be_dropped():
    world = World()
    ticket = world.ticket(PULL)
    world.hold(ticket)
    world.order(world.d, Watch(vllm_id="d-req", ticket=ticket))
    world.run(30)
    assert world.p.ended == []
    assert world.d.node.status().open_tickets == 1
    world.order(world.d, Drop(vllm_id="d-req", ticket=ticket))
    assert world.p.ended == HELD
    world.require_nothing_held()


def test_a_sample_that_finds_what_another_has_loaded_is_not_waited_for():
    world = World()
    ticket = world.ticket(PULL)
    world.hold(ticket)
    for vllm_id in ("d-req", "d-more"):
        world.order(world.d, Watch(vllm_id=vllm_id, ticket=ticket))
    world.is_parked = True
    world.load(ticket)
    world.order(world.d, Drop(vllm_id="d-more", ticket=ticket, is_shared=True))
    assert world.p.ended == []  # the first one still reads
    world.let_go()
    world.require_loaded()
    world.require_nothing_held()


def test_a_ticket_serves_once():
    world = World()
    ticket = world.ticket(PULL)
    hand_over(world, ticket)
    world.d.ended.clear()
    world.load(ticket, blocks=(1, 6, 7), vllm_id="d-again")
    assert world.failure() == "stale_generation"
    world.p.ended.clear()
    world.hold(ticket, vllm_id="p-again")
    assert [ended.vllm_id for ended in world.p.ended] == ["p-again"]
    world.require_nothing_held()


def test_a_ticket_of_another_life_moves_nothing():
    world = World()
    ticket = world.ticket(PULL)
    reborn = World(source=info("p0", epoch=8), destination=info("d0", epoch=9))
    reborn.hold(ticket)
    assert reborn.p.ended == HELD
    reborn.load(ticket)
    assert reborn.failure() == "destination_epoch"
    half = World(source=info("p0", epoch=8))
    half.load(ticket)
    assert half.failure() == "source_epoch"
    alone = World()
    alone.kill(alone.p)
    alone.load(ticket)
    assert alone.failure() == "source_unreachable"


def test_an_expired_ticket_is_denied():
    world = World()
    world.hold(world.ticket(PULL, generation=1))
    world.load(world.ticket(PULL, generation=1, deadline_ms=1_000))
    world.d.ended.clear()
    old = world.ticket(PULL, generation=2, deadline_ms=1_000)
    world.run(5)
    world.hold(world.ticket(PULL, generation=3), vllm_id="later")
    world.load(world.ticket(PULL, generation=3), vllm_id="later")
    world.d.ended.clear()
    world.load(old, blocks=(1, 6, 7))
    assert world.failure() in ("stale_generation", "capability_expired")


def test_a_grant_beyond_the_ticket_is_denied_and_frees_both():
    world = World()
    ticket = world.ticket(PULL, max_num_tokens=40)
    world.hold(ticket)
    world.load(ticket)
    assert world.failure() == "capability_bytes"
    assert world.p.ended == HELD
    world.require_nothing_held()


def test_a_forged_right_moves_nothing_and_lets_nothing_go():
    world = World()
    ticket = world.ticket(PULL, max_num_tokens=40, deadline_ms=3_000)
    world.hold(ticket)
    wide = replace(ticket.capability.capability, max_nbytes=1 << 40)
    world.load(replace(ticket, capability=replace(ticket.capability, capability=wide)))
    assert world.failure() == "capability_signature"
    assert world.p.ended == []
    world.run(4)
    assert world.p.ended == HELD
    world.require_nothing_held()


def test_a_source_judges_the_right_for_itself():
    world = World()
    ticket = world.ticket(PULL)
    world.hold(ticket)
    claims = []
    world.lost = lambda sender, message: isinstance(message, Claim) and not claims.append(message)
    world.load(ticket)
    wide = replace(ticket.capability.capability, max_nbytes=1 << 40)
    forged = replace(claims[0], capability=replace(ticket.capability, capability=wide))
    world.event(world.p, lambda node: node.on_message(world.d.key, forged, world.now_us))
    world.settle()
    assert world.failure() == "capability_signature"
    assert world.p.ended == HELD
    world.require_nothing_held()


@pytest.mark.parametrize(
    ("field", "value"), [("block_size", 64), ("attention_backend", "FLASH_ATTN")]
)
def test_a_pair_that_does_not_fit_is_refused_by_name(field, value):
    other = replace(info("p0"), facts=replace(FACTS, **{field: value}))
    world = World(source=other)
    ticket = world.ticket(PULL)
    world.hold(ticket)
    world.load(ticket)
    assert world.failure().startswith(f"{field}: source {value!r}, destination ")


def test_a_preempted_stream_fails_its_load_and_is_never_sent_again():
    world = World()
    ticket = world.ticket(PUSH)
    world.load(ticket)
    world.stream(ticket, 0, 40, (3, 5))
    world.layer(0)
    world.order(world.p, AbortHold(vllm_id="p-req", reason="preempted", is_awaited=False))
    assert world.failure() == "preempted"
    world.hold(ticket)
    assert world.p.ended == HELD
    world.require_nothing_held()


def test_a_prompt_that_is_given_up_tells_whoever_waits():
    world = World()
    ticket = world.ticket(PUSH)
    world.load(ticket)
    world.stream(ticket, 0, 40, (3, 5))
    world.order(world.p, AbortHold(vllm_id="p-req", reason="prefill_aborted", is_awaited=True))
    assert world.failure() == "prefill_aborted"
    assert world.p.ended == HELD
    world.require_nothing_held()


def test_strangers_change_nothing():
    world = World()
    ticket = world.ticket(PULL)
    world.is_parked = True
    hand_over(world, ticket)
    (loading,) = world.d.node.loads.loads.values()
    for message in (
        SourceRelease(fence=loading.transfer.fence),
        AbortTransfer(fence=loading.transfer.fence, reason="x"),
        loading.claim(),
    ):
        world.event(
            world.p, lambda node, told=message: node.on_message(("evil", 1), told, world.now_us)
        )
    assert world.p.ended == [] and len(world.p.node.holds.holds) == 1
    world.let_go()
    world.require_loaded()


def test_strangers_change_nothing_at_a_destination():
    world = World()
    world.is_parked = True
    hand_over(world, world.ticket(PULL))
    (loading,) = world.d.node.loads.loads.values()
    for message in (
        SourceFailed(fence=loading.transfer.fence, reason="x"),
        TransferQuiesced(fence=loading.transfer.fence),
    ):
        world.event(
            world.d, lambda node, told=message: node.on_message(("evil", 1), told, world.now_us)
        )
    assert world.d.ended == []
    world.let_go()
    world.require_loaded()
