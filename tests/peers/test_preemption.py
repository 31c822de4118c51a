"""Memory is short: what is preempted, evicted or waited for stays exact and comes back."""

import itertools

import pytest

from baton.core.messages import Prefill, Reserve
from tests.stage import MODES, Stage

DIRECTIONS = ("push", "pull")
TIGHT = {"blocks": 10, "growth": 0, "block_size": 4}
"""Three prompts of ten tokens fit, their answers do not."""


def crowd(stage: Stage, count: int = 4, max_tokens: int = 14) -> None:
    for number in range(count):
        stage.submit(f"r{number}", first=20 * number, max_tokens=max_tokens)


def preemptions(stage: Stage) -> int:
    return sum(worker.node.counters["preemptions"] for worker in stage.world.workers.values())


@pytest.mark.parametrize("mode", MODES)
def test_state_lost_by_a_preemption(mode):
    """Room runs out after state arrived: somebody waits, nobody crashes, every text is right."""
    stage = Stage(**MODES[mode], **TIGHT)
    crowd(stage)
    stage.finish_right()
    assert preemptions(stage) > 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_second_transfer_after_a_preemption(direction):
    """After publication decode owns the state: it rebuilds rows itself and asks nobody again."""
    stage = Stage(direction=direction, **TIGHT)
    crowd(stage)
    stage.finish_right()
    assert preemptions(stage) > 0
    assert not stage.traced("attempt_failed")
    prefills = [message.fence.transfer_id for message in stage.kinds(Prefill)]
    assert sorted(prefills) == sorted(set(prefills))
    assert {name.split(".")[0] for name in prefills} == {"r0", "r1", "r2", "r3"}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("num_lost", [0, 3])
def test_success_without_blocks(direction, num_lost):
    """A source seals only what it holds: with room for one prompt, the next one waits."""
    stage, turn = Stage(direction=direction, blocks=4, growth=0), itertools.count()
    stage.lose = lambda n, s, r, m: type(m).__name__ == "Seal" and next(turn) < num_lost
    for number in range(3):
        stage.submit(f"r{number}", prompt=12, first=20 * number, max_tokens=3)
    stage.finish_right()
    started = [us for us, *_ in stage.traced("prefill_started")]
    released = [us for us, *_ in stage.traced("source_released")]
    assert len(started) == len(released) == 3
    assert all(begin >= end for begin, end in zip(started[1:], released, strict=False))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_blocks_reused_while_they_are_read(direction):
    """A slow copy of one prompt, and a next prompt that wants its blocks."""
    stage = Stage(direction=direction, blocks=4, growth=0)
    stage.hit_chunk(2, "late", 400_000)
    stage.submit("slow", prompt=12, max_tokens=2)
    stage.submit("next", prompt=12, first=100, max_tokens=2)
    stage.finish_right()
    ((slow_us, *_),) = stage.traced("source_released", "slow")
    ((next_us, *_),) = stage.traced("prefill_started", "next")
    assert next_us >= slow_us


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_reused_prefix_removed_while_it_is_read(direction):
    """History that a sender reads is pinned: prompts that need room do not evict it."""
    stage = Stage(direction=direction, blocks=8, growth=0, batch=8)
    stage.submit("first", prompt=10, max_tokens=1)
    stage.finish_right()
    stage.hit_chunk(1, "late", 300_000)
    stage.submit("again", prompt=14, max_tokens=2)
    stage.until(lambda: stage.traced("prefill_started", "again"))
    for number in range(4):
        stage.submit(f"r{number}", prompt=12, first=50 * (number + 1), max_tokens=2)
    stage.finish_right()
    assert stage.end("again").usage.cached_tokens == 8
    evicted = stage.source.node.context.memory.pool.num_evicted
    assert evicted > 0, "the others needed room"


@pytest.mark.parametrize("mode", MODES)
def test_cancel_of_a_preempted_request(mode):
    """A request that lost its blocks still leaves everything behind that it held elsewhere."""
    calm = Stage(**MODES[mode], **TIGHT)
    crowd(calm)
    calm.finish_right()
    victims = [trace.request_id for _, _, trace in calm.traced("preempted")]
    assert victims
    for victim in dict.fromkeys(victims):
        for delay_us in (0, 100, 300, 2_000):
            stage = Stage(**MODES[mode], **TIGHT)
            crowd(stage)
            stage.until(lambda stage=stage, v=victim: stage.traced("preempted", v))
            stage.run_for(delay_us)
            if victim in stage.world.router.records:
                stage.world.cancel(victim, "disconnect")
            stage.finish()
            for other in stage.requests:
                if other != victim:
                    stage.assert_right(other)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_reservation_that_does_not_survive_waiting_for_room(direction):
    """A destination without room says so; the request waits and is not tried to death."""
    stage = Stage(direction=direction, blocks=5, growth=0, attempts=1)
    crowd(stage, count=5, max_tokens=3)
    stage.finish_right()
    assert not stage.traced("attempt_failed")
    assert len(stage.kinds(Reserve)) >= 5
