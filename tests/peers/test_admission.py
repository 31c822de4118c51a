"""Overload: early and honest refusal, bounded bytes, bounded waiting, no standstill."""

import pytest

from baton.core.delivery import Failed, Finished
from baton.core.messages import CreditReturn
from tests.stage import MODES, Stage

DIRECTIONS = ("push", "pull")


@pytest.mark.parametrize("mode", MODES)
def test_burst_that_freezes_everything(mode):
    """Sixty-four at once over room for six: all are served in turn, none by a timeout."""
    stage = Stage(**MODES[mode], blocks=24, growth=0, lease=10_000)
    for number in range(64):
        stage.submit(f"r{number}", prompt=9 + number % 4, first=number * 3, max_tokens=4)
    start_us = stage.now_us
    stage.finish_right()
    assert stage.now_us - start_us < 5_000_000
    assert not stage.traced("attempt_failed")
    assert all(w.node.counters["expired_leases"] == 0 for w in stage.world.workers.values())


@pytest.mark.parametrize("waiting", [0, 1, 5])
def test_refusal_that_comes_late(waiting):
    """Beyond the queue's bound a request is refused in the same moment, with a time to wait."""
    stage = Stage(blocks=8, growth=0, waiting=max(1, waiting), seqs=1)
    for number in range(20):
        before_us = stage.now_us
        stage.submit(f"r{number}", prompt=12, first=number * 20)
        end = stage.world.end_of(f"r{number}")
        if isinstance(end, Failed):
            assert stage.now_us == before_us
            assert (end.code, end.status) == ("queue_full", 429)
            assert 1 <= end.retry_after_s <= 300
    stage.finish()
    ends = [stage.end(request_id) for request_id in stage.requests]
    served = [end for end in ends if isinstance(end, Finished)]
    assert len(served) == max(1, waiting) + 1
    assert len(ends) - len(served) == 20 - len(served)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("window", [1, 2, 3])
def test_staging_that_fills_up(direction, window):
    """However small the window, bytes in flight stay below it and the transfer goes on."""
    stage = Stage(direction=direction, layers=3, chunk=32, credit=32 * window)
    for number in range(3):
        stage.submit(f"r{number}", prompt=18, first=number * 50)
    stage.finish_right()
    assert not stage.traced("attempt_failed")


def test_window_whose_every_return_is_lost_once():
    stage = Stage(layers=3, chunk=32, credit=32)
    lost: set[tuple[int, ...]] = set()

    def first_time(n, sender, receiver, message) -> bool:
        if not isinstance(message, CreditReturn) or message.chunk_ids in lost:
            return False
        lost.add(message.chunk_ids)
        return True

    stage.lose = first_time
    stage.submit(prompt=18)
    stage.finish_right()
    assert len(lost) > 5
    assert not stage.traced("attempt_failed")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_staging_that_is_never_emptied(direction):
    """A receiver that stands still: the sender lets go after a lease, with a reason, not never."""
    stage = Stage(direction=direction, decode=2)
    stage.submit()
    stage.until(lambda: stage.traced("authorized"))
    stage.destination.stall(4_000_000)
    stage.run_for(2_500_000)
    assert not stage.source.node.source.jobs
    stage.finish_right()


@pytest.mark.parametrize("attempts", [1, 2, 3, 5])
def test_load_fail_and_retry_for_ever(attempts):
    """A place where every transfer fails is tried a bounded number of times, then not at all."""
    stage = Stage(attempts=attempts, prefill=3)
    for worker in stage.world.workers.values():
        for number in range(1, 20):
            stage.hit_batch(worker, number)
    stage.submit()
    stage.finish()
    assert isinstance(stage.end(), Failed)
    assert stage.end().code == "attempts_exhausted"
    assert len(stage.traced("routed")) == attempts


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_retry_outside_the_budget_of_the_first_token(direction):
    """Retries end with the budget for the first token, whatever attempts are left."""
    stage = Stage(direction=direction, attempts=50, attempt_timeout=300, ttft_budget=1_000)
    stage.lose = lambda n, s, r, m: type(m).__name__ == "Prefill"
    stage.submit()
    start_us = stage.now_us
    stage.until(lambda: stage.world.end_of("r"))
    assert isinstance(stage.end(), Failed)
    assert stage.now_us - start_us <= 1_500_000
    stage.finish()
