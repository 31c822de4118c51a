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
from baton.sim.fast.router import arrive, denied, route_waiting, wait
from baton.sim.fast.state import State
from baton.sim.fast.steps import end_step, kick


@compiled
def run_until(s: State, net: Network, x: Extras | None, stop_us: float) -> int:
    """Everything that happens by then; why it returned."""
    num_requests, room = s.requests.shape[0], s.event_us.shape[0] - s.counts[c.C_MARGIN]
    while s.counts[c.C_NUM_OPEN] > 0 or s.counts[c.C_HEAP] > 0:
        if s.counts[c.C_HEAP] > room:
            return c.HEAP_FULL
        arrival_us = event_us = math.inf
        arrived = s.counts[c.C_ARRIVED]
        if arrived < num_requests:
            arrival_us = s.request_us[arrived, c.R_ARRIVAL_US]
        if s.counts[c.C_HEAP] > 0:
            event_us = s.event_us[1]
        flow_us = next_us(net, s.numbers[c.N_NOW_US])
        at_us = min(arrival_us, event_us, flow_us)
        if at_us > stop_us or at_us == math.inf:
            return c.STOPPED
        s.numbers[c.N_NOW_US] = max(s.numbers[c.N_NOW_US], at_us)
        s.counts[c.C_NUM_EVENTS] += 1
        if flow_us <= at_us:
            for k in range(advance(net, at_us)):
                flow_finished(s, net.finished[k])
        elif event_us <= at_us:
            take_next(s)
            event = s.events[0]
            if event[c.V_KIND] >= c.E_DOWN:
                return c.WORKER_CHANGED
            next_is = _happen(s, net, x, event[c.V_KIND], event[c.V_ID], event[c.V_ATTEMPT])
            if next_is == c.ROUTE:
                route_waiting(s, net, x)
            elif next_is >= 0:
                kick(s, net, x, next_is)
        else:
            s.counts[c.C_ARRIVED] += 1
            after(s, s.numbers[c.N_IN_US], c.E_ROUTER, arrived, 0)
    return c.DONE


@compiled
def _happen(s: State, net: Network, x: Extras | None, kind: int, number: int, attempt: int) -> int:
    """The worker that may have work now, or what else is to be done."""
    if kind == c.E_STEP:
        worker = s.lanes[number, c.L_WORKER]
        if s.workers[worker, c.W_LIFE] != attempt:
            return c.NOTHING
        end_step(s, net, x, number)
        return int(worker)
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
    elif kind == c.E_PREFILL:
        enqueue(s, request)
        return int(one[c.R_PREFILL])
    elif kind == c.E_PUBLISH:
        publish(s, x, request)
        return int(one[c.R_DECODE])
    else:
        release_source(s, x, request)
        return int(one[c.R_PREFILL])
    return c.NOTHING


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
