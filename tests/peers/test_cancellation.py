"""A client may leave at any moment: one end, nothing stays, and nobody else notices."""

import pytest

from baton.core.messages import Cancel, Seal
from tests.stage import MODES, Stage, each_loss

DIRECTIONS = ("push", "pull")


def num_steps(mode: str) -> int:
    stage = Stage(**MODES[mode])
    stage.submit(max_tokens=6)
    before = stage.world.timeline.num_steps
    stage.until(lambda: not stage.world.router.records)
    return stage.world.timeline.num_steps - before


@pytest.mark.parametrize("mode", MODES)
def test_disconnect_in_an_unsafe_phase(mode):
    """Between any two events of a request: its end comes, and its neighbour is served as ever."""
    for number in range(num_steps(mode)):
        stage = Stage(**MODES[mode])
        stage.submit(max_tokens=6)
        stage.submit("neighbour", first=100, max_tokens=6)
        before = stage.world.timeline.num_steps
        stage.until(lambda s=stage, n=before + number: s.world.timeline.num_steps >= n)
        if "r" in stage.world.router.records:
            stage.world.cancel("r", "disconnect")
            stage.until(lambda stage=stage: stage.world.end_of("r"))
            assert stage.end().finish_reason in ("cancelled", "length")
        stage.finish()
        stage.assert_right("neighbour")
        stage.submit("next", first=200)
        stage.finish()
        stage.assert_right("next")


@pytest.mark.parametrize("mode", MODES)
def test_disconnect_before_the_first_token(mode):
    """A long prompt that nobody waits for any more costs the next one at most a batch."""
    stage = Stage(**MODES[mode], batch=8, blocks=256)
    stage.submit("long", prompt=400, max_tokens=2)
    stage.until(lambda: stage.traced("prefill_queued", "long"))
    stage.run_for(2_000)
    stage.world.cancel("long", "disconnect")
    cancelled_us = stage.now_us
    stage.submit("short", prompt=6, first=700, max_tokens=2)
    stage.until(lambda: stage.tokens("short"))
    waited_us = stage.now_us - cancelled_us
    stage.finish()
    calm = Stage(**MODES[mode], batch=8, blocks=256)
    calm.submit("short", prompt=6, first=700, max_tokens=2)
    start_us = calm.now_us
    calm.until(lambda: calm.tokens("short"))
    batch_us = 200 + 8 * 20
    assert waited_us <= calm.now_us - start_us + 2 * batch_us


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_disconnect_when_the_prompt_is_done_and_nobody_knows(direction):
    """The source has sealed, the destination has not heard: the router owns the gap."""
    stage = Stage(direction=direction, lease=60_000)
    stage.lose = lambda n, s, r, m: isinstance(m, Seal)
    stage.submit()
    stage.until(lambda: stage.kinds(Seal))
    stage.run_for(1_000)
    stage.world.cancel("r", "disconnect")
    cancelled_us = stage.now_us
    stage.until(
        lambda: not (stage.source.node.source.jobs or stage.destination.node.destination.incoming)
    )
    assert stage.now_us - cancelled_us < 5_000, "long before a lease or a retry"
    stage.finish()
    assert stage.end().finish_reason == "cancelled"


def cancel_while_it_is_computed(stage: Stage) -> None:
    stage.submit()
    stage.until(lambda: stage.traced("prefill_done"))
    stage.world.cancel("r", "disconnect")


def cancel_while_it_decodes(stage: Stage) -> None:
    stage.submit(max_tokens=30)
    stage.until(lambda: len(stage.tokens()) == 3)
    stage.world.cancel("r", "disconnect")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", [cancel_while_it_is_computed, cancel_while_it_decodes])
def test_disconnect_whose_own_words_are_lost(start, mode):
    for stage in each_loss(start, **MODES[mode]):
        stage.finish()
        assert stage.end().finish_reason in ("cancelled", "length")


@pytest.mark.parametrize("mode", MODES)
def test_cancelled_request_that_runs_to_its_end(mode):
    """After the worker heard of it, no further token of it is computed."""
    stage = Stage(**MODES[mode])
    stage.submit(max_tokens=200)
    stage.until(lambda: len(stage.tokens()) == 5)
    stage.world.cancel("r", "disconnect")
    stage.until(lambda: stage.kinds(Cancel))
    stage.finish()
    assert stage.end().finish_reason == "cancelled"
    assert stage.end().usage.completion_tokens <= 8
    assert stage.destination.node.counters["stale_messages"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_cancel_storm(mode):
    """Half of the clients leave, each at another moment; the others get their text."""
    stage = Stage(**MODES[mode], blocks=48)
    for number in range(24):
        stage.submit(f"r{number}", prompt=6 + number % 7, first=number * 10, max_tokens=6)
        if number % 2:
            world = stage.world
            world.timeline.after(
                number * 190, lambda world=world, n=number: world.cancel(f"r{n}", "disconnect")
            )
    stage.finish()
    for number in range(0, 24, 2):
        stage.assert_right(f"r{number}")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("unheard", ["AbortTransfer", "Cancel"])
def test_disconnect_that_one_of_two_ways_does_not_carry(direction, unheard):
    """The source hears of it from the router and from its peer; either of them is enough."""
    stage = Stage(direction=direction, batch=8, blocks=256, lease=60_000)
    stage.submit(prompt=400)
    stage.until(lambda: stage.traced("prefill_started"))
    stage.lose = lambda n, s, r, m: r == "prefill-0" and type(m).__name__ == unheard
    stage.world.cancel("r", "disconnect")
    stage.run_for(1_500)
    assert not stage.source.node.source.jobs, "fifty batches would have taken eighteen"
    stage.finish()
    assert stage.end().finish_reason == "cancelled"
