"""The heap of events, earliest first and equal times in the order in which they were set."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.state import State


@compiled
def _is_before(s: State, a: int, b: int) -> bool:
    if s.event_us[a] != s.event_us[b]:
        return bool(s.event_us[a] < s.event_us[b])
    return bool(s.events[a, c.V_SEQUENCE] < s.events[b, c.V_SEQUENCE])


@compiled
def _move(s: State, source: int, target: int) -> None:
    s.event_us[target] = s.event_us[source]
    for column in range(4):
        s.events[target, column] = s.events[source, column]


@compiled
def after(s: State, delay_us: float, kind: int, number: int, attempt: int) -> None:
    """Something happens so long from now; `attempt` tells events of former lives from others."""
    size = s.counts[c.C_HEAP] + 1
    s.counts[c.C_HEAP] = size
    s.counts[c.C_SEQUENCE] += 1
    at_us = s.numbers[c.N_NOW_US] + delay_us
    position = size
    # Every earlier one has a lower sequence number, so the time alone decides.
    while position > 1 and at_us < s.event_us[position // 2]:
        _move(s, position // 2, position)
        position //= 2
    s.event_us[position] = at_us
    s.events[position, c.V_SEQUENCE] = s.counts[c.C_SEQUENCE]
    s.events[position, c.V_KIND] = kind
    s.events[position, c.V_ID] = number
    s.events[position, c.V_ATTEMPT] = attempt


@compiled
def take_next(s: State) -> None:
    """The earliest event moves from the heap to entry 0."""
    _move(s, 1, 0)
    size = s.counts[c.C_HEAP]
    s.counts[c.C_HEAP] = size - 1
    position = 1
    while 2 * position < size:
        child = 2 * position
        if child + 1 < size and _is_before(s, child + 1, child):
            child += 1
        if not _is_before(s, child, size):
            break
        _move(s, child, position)
        position = child
    if size > 1:
        _move(s, size, position)
