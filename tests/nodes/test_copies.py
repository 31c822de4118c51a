"""Copies of history between workers: inserted or nothing, whatever is lost and whoever dies."""

from typing import Any

import pytest
from msgspec.structs import replace

from baton.config import CacheConfig
from baton.core.cache import Tier
from baton.core.effects import Trace
from baton.core.events import Tick
from baton.core.ids import Direction
from baton.core.messages import (
    Aborted,
    Accepted,
    Authorized,
    CreditReturn,
    Message,
    Prefill,
    Present,
    Published,
    Reserve,
    Reserved,
    Seal,
    SourceRelease,
)
from baton.nodes.history_copy import HistoryCopy, Motive
from baton.sim.faults import ChunkFault
from tests.stage import Stage, uneven_plan

SIZE = 4
PROMPT = tuple(range(18))
"""Four whole blocks, and a tail that has no name."""
WARM, COLD = "prefill-0", "prefill-1"


def warm_stage(cache: CacheConfig | None = None, **options: Any) -> Stage:
    """A deployment whose prefill and decode workers have both served PROMPT."""
    transfer = {"lease_ms": 1000, "retry_ms": 50, **options}
    plan = uneven_plan("prefill", "prefill", "decode", transfer=transfer)
    stage = Stage(replace(plan, cache=cache or plan.cache))
    stage.submit("first", PROMPT, max_tokens=2)
    stage.finish_right()
    stage.sent.clear()
    assert holders(stage) == {WARM, "decode-2"}
    return stage


def holders(stage: Stage, num_blocks: int = 4) -> set[str]:
    """Workers that hold the named prefix of PROMPT in memory."""
    found = set()
    for worker_id, worker in stage.world.workers.items():
        memory = worker.node.context.memory
        hashes = memory.hashes(stage.requests["first"], PROMPT)[:num_blocks]
        if all(memory.pool.lookup(block_hash) is not None for block_hash in hashes):
            found.add(worker_id)
    return found


def start(
    stage: Stage, source: str, destination: str, tokens: tuple[int, ...] = PROMPT[:16]
) -> HistoryCopy | None:
    """Order a copy as the router does on its own."""
    router = stage.world.router
    router.context.now_us = stage.world.router_now_us
    copy = router.copies.start(
        Motive.REPLICATE,
        tokens,
        stage.requests["first"],
        router.fleet.get(source),
        router.fleet.get(destination),
    )
    stage.world.feed_router(Tick())
    return copy


@pytest.mark.parametrize("direction", list(Direction))
def test_a_copy_names_its_blocks_at_the_destination_and_holds_nothing(direction):
    stage = warm_stage(direction=direction)
    start(stage, "decode-2", COLD)
    stage.until(lambda: not stage.world.router.copies)
    assert COLD in holders(stage)
    assert stage.world.router.counters["copies_inserted"] == 1
    stage.settle()


def test_the_next_prompt_reuses_what_was_copied():
    stage = warm_stage()
    start(stage, "decode-2", COLD)
    stage.until(lambda: not stage.world.router.copies)
    stage.crash(stage.world.workers[WARM], down_us=50_000_000)
    stage.submit("second", PROMPT)
    stage.serve()
    assert stage.end("second").usage.cached_tokens == 16


def test_what_is_held_already_moves_nothing():
    stage = warm_stage()
    start(stage, "decode-2", WARM)
    stage.until(lambda: not stage.world.router.copies)
    assert stage.world.router.counters["copies_inserted"] == 1
    assert not [m for _, _, m in stage.sent if isinstance(m, Prefill | Seal)]
    stage.settle()


def test_a_stale_claim_fails_closed():
    stage = warm_stage()
    start(stage, "decode-2", COLD, tuple(range(100, 116)))
    stage.until(lambda: not stage.world.router.copies)
    assert stage.world.router.counters["copies_given_up"] == 1
    assert stage.world.workers["decode-2"].node.counters["absent_prefixes"] == 1
    assert COLD not in holders(stage)
    stage.settle()


def test_a_claim_that_holds_in_part_fails_closed():
    stage = warm_stage()
    start(stage, "decode-2", COLD, (*PROMPT[:8], *range(100, 108)))
    stage.until(lambda: not stage.world.router.copies)
    assert stage.world.router.counters["copies_given_up"] == 1
    assert stage.world.workers["decode-2"].node.counters["absent_prefixes"] == 1
    assert not stage.kinds(Seal), "nothing is sent of a claim that does not hold"
    assert COLD not in holders(stage, 1)
    stage.settle()


KINDS: list[type[Message]] = [
    Reserve, Reserved, Prefill, Accepted, Present, Authorized, CreditReturn, Seal, SourceRelease,
    Published,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_one_lost_message_of_each_kind_leaks_nothing_and_ends_the_copy(kind):
    stage = warm_stage()
    lost: list[Message] = []

    def lose_first(number: int, sender: str, receiver: str, message: Message) -> bool:
        if isinstance(message, kind) and not lost:
            lost.append(message)
            return True
        return False

    stage.lose = lose_first
    start(stage, "decode-2", COLD)
    stage.until(lambda: not stage.world.router.copies)
    assert lost, "the message was never sent"
    assert stage.world.router.counters["copies_inserted"] == 1
    assert COLD in holders(stage)
    stage.settle()


@pytest.mark.parametrize("victim", ["source", "destination"])
@pytest.mark.parametrize("kind", [Reserve, Reserved, Prefill, Seal], ids=lambda k: k.__name__)
def test_a_death_at_any_point_ends_the_copy_and_leaks_nothing(victim, kind):
    stage = warm_stage()
    start(stage, "decode-2", COLD)
    stage.until(lambda: any(isinstance(m, kind) for _, _, m in stage.sent))
    dead = "decode-2" if victim == "source" else COLD
    stage.crash(stage.world.workers[dead])
    stage.until(lambda: not stage.world.router.copies)
    stage.settle()


def test_a_death_of_the_source_is_heard_at_once():
    """Even where the destination's own word of it is lost."""
    stage = warm_stage()
    stage.lose = lambda number, sender, receiver, message: isinstance(message, Seal | Aborted)
    start(stage, "decode-2", COLD)
    stage.until(lambda: any(isinstance(m, Seal) for _, _, m in stage.sent))
    died_us = stage.now_us
    stage.crash(stage.world.workers["decode-2"])
    stage.until(lambda: not stage.world.router.copies)
    assert stage.now_us - died_us < 100_000
    stage.settle()


def test_a_copy_that_takes_too_long_is_given_up():
    stage = warm_stage()
    stage.lose = lambda number, sender, receiver, message: isinstance(message, Seal)
    start(stage, "decode-2", COLD)
    stage.until(lambda: not stage.world.router.copies)
    ended = [t for _, _, t in stage.traced("copy_ended")]
    assert [t.data["reason"] for t in ended] == ["copy_timeout"]
    assert COLD not in holders(stage)
    stage.settle()


def test_only_so_many_copies_run_at_once():
    stage = warm_stage(cache=CacheConfig(max_copies=3))
    twice = [start(stage, "decode-2", COLD, PROMPT[:SIZE]) for _ in range(2)]
    assert [copy is not None for copy in twice] == [True, False], "the same copy runs once"
    others = [start(stage, "decode-2", COLD, PROMPT[: SIZE * blocks]) for blocks in (2, 3, 4)]
    assert [copy is not None for copy in others] == [True, True, False]
    stage.until(lambda: not stage.world.router.copies)
    stage.settle()


def test_traces_tell_a_copy_from_its_start_to_its_end():
    stage = warm_stage()
    copy = start(stage, "decode-2", COLD)
    assert copy is not None
    stage.until(lambda: not stage.world.router.copies)
    told: list[Trace] = [t for _, _, t in stage.traces if t.request_id == copy.copy_id]
    names = [t.name for t in told]
    assert names[0] == "copy_started" and names[-1] == "copy_ended"
    assert {"reserved", "copy_opened", "sealed", "published", "inserted"} <= set(names)


def tiered_stage() -> Stage:
    """PROMPT has gone down to the host tier of its prefill worker and is not in memory any more."""
    transfer = {"lease_ms": 1000, "retry_ms": 50}
    plan = uneven_plan(
        "prefill", "prefill", "decode", transfer=transfer, num_blocks=8, num_host_blocks=64
    )
    stage = Stage(plan)
    stage.submit("first", PROMPT, max_tokens=2)
    stage.finish_right()
    for number in range(3):
        stage.submit(f"other-{number}", 24, first=100 + 100 * number, max_tokens=2)
        stage.finish_right()
    stage.run_for(500_000)
    assert holders(stage, 1) == set()
    held = stage.world.router.context.holdings.holdings(WARM)
    assert held[Tier.HOST] >= 4
    stage.sent.clear()
    return stage


def test_a_copy_is_sent_from_a_lower_tier_once_it_has_come_up():
    stage = tiered_stage()
    start(stage, WARM, COLD)
    stage.until(lambda: not stage.world.router.copies)
    assert COLD in holders(stage)
    assert stage.world.workers[WARM].node.counters["absent_prefixes"] == 0
    assert stage.traced("tier_loaded", stage.traced("copy_started")[0][2].request_id)
    stage.settle()


def test_a_lower_tier_that_fails_to_be_read_gives_the_copy_up():
    stage = tiered_stage()
    worker = stage.world.workers[WARM]
    for number in range(1, 9):
        at = number + worker.tiers.num_copies + worker.epoch * 1_000_000
        fault = ChunkFault(worker_id=WARM, number=at, kind="tier_fail")
        stage.world.listed["tier", WARM, at] = fault
    start(stage, WARM, COLD)
    stage.until(lambda: not stage.world.router.copies)
    assert stage.world.router.counters["copies_given_up"] == 1
    assert COLD not in holders(stage)
    stage.settle()
