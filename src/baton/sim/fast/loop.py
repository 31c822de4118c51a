"""The loop: arrivals, events and flows in the order of time."""

import math

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.accounts import forget, forget_prefill
from baton.sim.fast.admission import leave_open
from baton.sim.fast.events import after, take_next
from baton.sim.fast.extras import Extras
from baton.sim.fast.fetches import end_fetch
from baton.sim.fast.handoff import flow_finished, publish, release_source
from baton.sim.fast.network import advance, next_us
from baton.sim.fast.network_state import Network
from baton.sim.fast.questions import note_end
from baton.sim.fast.reservations import enqueue, reserve
from baton.sim.fast.router import arrive, denied, find_route, next_waiting, take_route, wait
from baton.sim.fast.state import State
from baton.sim.fast.steps import choose_steps, end_step, run_chosen


@compiled
def run_until(s: State, net: Network, x: Extras | None, stop_us: float) -> int:
    """Everything that happens by then; why it returned.

    What is heavy is called from here and from nowhere else, since whoever calls it is compiled
    with all of it.
    """
    room = s.event_us.shape[0] - s.counts[c.C_MARGIN]
    while s.counts[c.C_NUM_OPEN] > 0 or s.counts[c.C_HEAP] > 0:
        if s.counts[c.C_HEAP] > room:
            return c.HEAP_FULL
        flow_us = next_us(net, s.numbers[c.N_NOW_US])
        what = _next(s, flow_us, stop_us)
        if what == c.STOPS:
            return c.STOPPED
        to_do, number = c.NOTHING, 0
        if what == c.FLOWS:
            for k in range(advance(net, s.numbers[c.N_NOW_US])):
                flow_finished(s, net.finished[k])
        elif what == c.ARRIVES:
            after(s, s.numbers[c.N_IN_US], c.E_ROUTER, s.counts[c.C_ARRIVED], 0)
            s.counts[c.C_ARRIVED] += 1
        else:
            take_next(s)
            kind, number = s.events[0, c.V_KIND], s.events[0, c.V_ID]
            if kind >= c.E_DOWN:
                return c.WORKER_CHANGED
            if kind != c.E_STEP:
                to_do = _happen(s, x, kind, number, s.events[0, c.V_ATTEMPT])
            elif s.lanes[number, c.L_LIFE] == s.events[0, c.V_ATTEMPT]:
                end_step(s, net, x, number)
                to_do = s.lanes[number, c.L_WORKER]
        if to_do == c.ROUTE:
            request = next_waiting(s)
            while request >= 0:
                found = find_route(s, x, request)
                request = next_waiting(s) if take_route(s, net, x, request, found) else -1
        elif to_do >= 0:
            lane = choose_steps(s, x, to_do)
            while lane >= 0:
                run_chosen(s, net, to_do, lane)
                lane = choose_steps(s, x, to_do)
    return c.DONE


@compiled
def _next(s: State, flow_us: float, stop_us: float) -> int:
    """What comes first; the clock is set to it."""
    arrival_us = event_us = math.inf
    if s.counts[c.C_ARRIVED] < s.requests.shape[0]:
        arrival_us = s.request_us[s.counts[c.C_ARRIVED], c.R_ARRIVAL_US]
    if s.counts[c.C_HEAP] > 0:
        event_us = s.event_us[1]
    at_us = min(arrival_us, event_us, flow_us)
    if at_us > stop_us or at_us == math.inf:
        return c.STOPS
    s.numbers[c.N_NOW_US] = max(s.numbers[c.N_NOW_US], at_us)
    s.counts[c.C_NUM_EVENTS] += 1
    if flow_us <= at_us:
        return c.FLOWS
    return c.HAPPENS if event_us <= at_us else c.ARRIVES


@compiled
def _happen(s: State, x: Extras | None, kind: int, number: int, attempt: int) -> int:
    """The worker that may have work now, or what else is to be done."""
    if kind == c.E_STAGE:
        return number
    if kind >= c.E_HEARTBEAT:
        if kind == c.E_HEARTBEAT:
            s.workers[number, c.W_IS_FULL] = 0
        return c.ROUTE
    if s.requests[number, c.R_ATTEMPT] != attempt:
        return c.NOTHING
    if kind >= c.E_ROUTER:
        return c.ROUTE if _happen_at_router(s, x, kind, number) else c.NOTHING
    return _happen_to(s, x, kind, number)


@compiled
def _happen_to(s: State, x: Extras | None, kind: int, request: int) -> int:
    """Something happens to a request at a worker, which may have work then."""
    one = s.requests[request]
    if kind == c.E_RESERVE:
        reserve(s, x, request)
        return c.NOTHING
    if kind == c.E_PREFILL:
        enqueue(s, x, request)
        return int(one[c.R_PREFILL])
    if kind == c.E_PUBLISH:
        publish(s, x, request)
        return int(one[c.R_DECODE])
    release_source(s, x, request)
    return int(one[c.R_PREFILL])


@compiled
def _happen_at_router(s: State, x: Extras | None, kind: int, request: int) -> bool:
    """The router hears something; whether others may be routed now."""
    if kind == c.E_ROUTER:
        return arrive(s, request)
    if kind == c.E_KNOWN:
        forget_prefill(s, request)
        return False
    if kind == c.E_DONE:
        forget(s, request)
        leave_open(s, request)
        note_end(s, x, request)
    elif kind == c.E_DENIED:
        denied(s, request)
    else:
        end_fetch(s, x, request)
        wait(s, request, True)
    return True
