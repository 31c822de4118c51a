"""Servers of different tensor-parallel sizes: every head arrives, together or not at all."""

import pytest
from msgspec.structs import replace

from baton.core.ids import Direction
from baton.integrations.vllm.orders import (
    AbortHold,
    AbortLoad,
    Drop,
    HoldEnded,
    LoadEnded,
    Watch,
)
from tests.integrations.vllm.servers import Servers

LOADED = [LoadEnded(vllm_id="d-req")]
HELD = [HoldEnded(vllm_id="p-req")]
SIZES = [
    *((1, 2, heads) for heads in (1, 2, 4)),
    *((2, 1, heads) for heads in (1, 2, 4)),
    *((2, 4, heads) for heads in (1, 2, 4, 8)),
    *((4, 2, heads) for heads in (1, 2, 4, 8)),
    *((1, 4, heads) for heads in (2, 4)),
    *((4, 1, heads) for heads in (2, 4)),
    *((2, 2, heads) for heads in (1, 2, 4)),
    (8, 4, 2),
    (4, 8, 2),
]


def failures(world):
    """What each destination rank told vLLM; blocks with every failure."""
    for side in world.d:
        (ended,) = side.ended
        assert ended.is_published or ended.failed_blocks == (8, 2, 11)
    return [side.ended[0].reason for side in world.d]


@pytest.mark.parametrize(("source_tp", "destination_tp", "heads"), SIZES)
@pytest.mark.parametrize("is_early", [True, False])
def test_a_pull_brings_every_rank_its_heads(source_tp, destination_tp, heads, is_early):
    world = Servers(source_tp, destination_tp, heads)
    ticket = world.ticket()
    if is_early:
        world.load(ticket)
    world.hold(ticket)
    if not is_early:
        world.load(ticket)
    assert [side.ended for side in world.d] == [LOADED] * destination_tp
    assert [side.ended for side in world.p] == [HELD] * source_tp
    world.require_loaded()
    world.require_nothing_held()


@pytest.mark.parametrize(("source_tp", "destination_tp", "heads"), SIZES)
def test_a_push_streams_every_rank_its_heads(source_tp, destination_tp, heads):
    world = Servers(source_tp, destination_tp, heads)
    ticket = world.ticket(Direction.PUSH)
    world.load(ticket)
    world.stream(ticket, 0, 40, (3, 5))
    world.layers_written()
    assert world.num_moves > 0  # whole blocks go before the prompt is complete
    world.stream(ticket, 40, 70, (3, 5, 4))
    world.layers_written()
    world.hold(ticket)
    assert [side.ended for side in world.d] == [LOADED] * destination_tp
    assert [side.ended for side in world.p] == [HELD] * source_tp
    world.require_loaded()
    world.require_nothing_held()


@pytest.mark.parametrize("direction", list(Direction))
def test_one_corrupt_leg_keeps_the_verified_ones_unpublished(direction):
    world = Servers(4, 1, 4)
    moves = []
    world.flip = lambda side, order: not moves.append(order) and len(moves) == 7
    ticket = world.ticket(direction)
    world.load(ticket)
    world.hold(ticket)
    world.run(1)
    assert failures(world) == ["checksum_mismatch"]
    counters = world.d[0].legs.status().counters
    assert not counters.get("published_loads") and counters["failed_loads"] == 4
    assert [side.ended for side in world.p] == [HELD] * 4
    assert not any(side.legs.status().counters.get("released_holds") for side in world.p)
    world.require_nothing_held()


def test_a_source_lets_go_only_when_all_its_destinations_heads_are_there():
    world = Servers(2, 1, 2)
    world.is_parked = lambda side, order: order.reservation_id % 2 == 0
    ticket = world.ticket()
    world.hold(ticket)
    world.load(ticket)
    world.run(5)
    assert world.d[0].parked and not world.d[0].ended
    assert [side.legs.status().open_holds for side in world.p] == [1, 1]
    world.let_go()
    world.run(1)
    assert world.d[0].ended == LOADED
    world.require_loaded()
    world.require_nothing_held()


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(("source_tp", "destination_tp"), [(2, 1), (4, 2), (1, 2), (1, 4)])
def test_a_lost_source_rank_fails_every_rank_that_needs_it(source_tp, destination_tp, direction):
    world = Servers(source_tp, destination_tp, 4)
    world.is_parked = lambda side, order: True
    ticket = world.ticket(direction)
    world.load(ticket)
    world.hold(ticket)
    assert not any(side.ended for side in world.d)
    for side in list(world.p):  # a server's engine ends when one of its ranks does
        world.kill(side)
    assert failures(world) == ["source_lost"] * destination_tp
    assert not any(side.parked for side in world.d)
    world.run(0.2)
    world.require_nothing_held()


def test_one_lost_rank_of_two_is_enough():
    world = Servers(2, 1, 2)
    world.is_parked = lambda side, order: True
    ticket = world.ticket()
    world.load(ticket)
    world.hold(ticket)
    world.kill(world.p[1])
    assert failures(world) == ["source_lost"]
    assert world.p[0].ended == HELD
    world.require_nothing_held()


def test_a_rank_that_is_gone_before_it_is_met_fails_the_load_and_frees_the_others():
    world = Servers(2, 1, 2)
    ticket = world.ticket()
    world.hold(ticket)
    world.kill(world.p[0])
    world.load(ticket)
    assert failures(world) == ["source_unreachable"]
    world.run(1)
    assert world.p[1].ended == HELD
    world.require_nothing_held()


@pytest.mark.parametrize("direction", list(Direction))
def test_an_abort_quiesces_every_leg_before_vllm_hears(direction):
    world = Servers(2, 4, 4)
    world.is_parked = lambda side, order: True
    ticket = world.ticket(direction)
    world.load(ticket)
    world.hold(ticket)
    assert world.d[0].parked or world.p[0].parked
    world.order(world.d, AbortLoad(vllm_id="d-req"))
    world.run(1)
    assert failures(world) == ["request_aborted"] * 4
    assert [side.ended for side in world.p] == [HELD] * 2
    assert not any(side.parked for side in (*world.p, *world.d))
    assert world.num_moves == 0
    world.require_nothing_held()


def test_a_dead_destination_frees_every_rank():
    world = Servers(2, 4, 4)
    world.is_parked = lambda side, order: True
    ticket = world.ticket(Direction.PUSH)
    world.load(ticket)
    world.hold(ticket)
    for side in list(world.d):
        world.kill(side)
    assert [side.ended for side in world.p] == [HELD] * 2
    world.require_nothing_held()


def test_a_dropped_ticket_frees_every_rank_and_a_preempted_prompt_is_answered_once():
    world = Servers(2, 4, 4)
    ticket = world.ticket()
    world.hold(ticket)
    world.order(world.d, Watch(vllm_id="d-req", ticket=ticket))
    world.order(world.d, Drop(vllm_id="d-req", ticket=ticket))
    assert [side.ended for side in world.p] == [HELD] * 2
    world.require_nothing_held()
    world = Servers(2, 4, 4)
    ticket = world.ticket(Direction.PUSH)
    world.load(ticket)
    world.stream(ticket, 0, 40, (3, 5))
    world.order(world.p, AbortHold(vllm_id="p-req", reason="preempted", is_awaited=False))
    world.order(world.p, AbortHold(vllm_id="p-req", reason="prefill_aborted", is_awaited=True))
    assert [side.ended for side in world.p] == [HELD] * 2
    assert failures(world) == ["preempted"] * 4
    world.run(1)
    world.require_nothing_held()


def test_a_ticket_serves_each_leg_once():
    world = Servers(2, 1, 2)
    ticket = world.ticket()
    world.load(ticket)
    world.hold(ticket)
    assert world.d[0].ended == LOADED
    world.load(ticket, (1, 6, 7))
    world.hold(ticket, (9, 10, 0))
    world.run(1)
    again = world.d[0].ended[1]
    assert again.reason == "stale_generation" and again.failed_blocks == (1, 6, 7)
    world.require_loaded()
    world.require_nothing_held()


def test_heads_that_no_ranks_can_share_fail_at_once():
    world = Servers(1, 1, 3)
    ticket = world.ticket()
    member = ticket.source
    odd = replace(ticket, source=replace(member, endpoints=("tcp://a:1", "tcp://a:2")))
    world.load(odd)
    assert failures(world) == ["uneven_heads"]
    assert world.d[0].legs.status().counters["refused_uneven_heads"] == 1
    world.require_nothing_held()


def test_a_prompt_is_kept_until_the_last_destination_rank_has_its_heads():
    world = Servers(1, 2, 2)
    world.is_parked = lambda side, order: side.info.rank == 1
    ticket = world.ticket()
    world.hold(ticket)
    world.load(ticket)
    world.run(1)
    assert world.d[0].ended == LOADED and world.d[1].ended == []
    assert world.p[0].ended == [] and world.p[0].legs.status().held_blocks == 3
    world.let_go()
    world.run(1)
    assert world.p[0].ended == HELD
    world.require_loaded()
    world.require_nothing_held()
