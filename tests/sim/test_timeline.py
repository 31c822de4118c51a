"""One total order (at, seq), and clocks that drift without ever running backwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.sim.clock import Clock
from baton.sim.timeline import Timeline


@given(st.lists(st.integers(0, 50)))
def test_actions_run_by_time_and_then_in_the_order_they_were_set(times):
    timeline, ran = Timeline(), []
    for number, at_us in enumerate(times):
        timeline.at(at_us, lambda item=(at_us, number): ran.append(item))
    while timeline.step():
        pass
    assert ran == sorted((at_us, number) for number, at_us in enumerate(times))


def test_the_past_is_now_and_comes_after_what_is_due_now():
    timeline, ran = Timeline(), []
    timeline.at(5, lambda: timeline.at(1, lambda: ran.append(("late", timeline.now_us))))
    timeline.at(5, lambda: ran.append(("second", timeline.now_us)))
    timeline.run_until(9)
    assert ran == [("second", 5), ("late", 5)]
    assert timeline.now_us == 9


@pytest.mark.parametrize("drift_ppm", [-500, -1, 0, 1, 200, 100_000])
@given(local_us=st.integers(0, 10**12), offset_us=st.integers(0, 10**9))
def test_a_deadline_is_met_at_the_first_moment_the_clock_shows_it(drift_ppm, local_us, offset_us):
    clock = Clock(offset_us=offset_us, drift_ppm=drift_ppm)
    local_us += offset_us
    world_us = clock.world_us(local_us)
    assert clock.local_us(world_us) >= local_us
    assert world_us == 0 or clock.local_us(world_us - 2) < local_us
