"""The loop: arrivals, events and flows in the order of time."""

import math

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.events import after, take_next
from baton.sim.fast.handoff import flow_finished, publish, release_source
from baton.sim.fast.network import advance, next_us
from baton.sim.fast.network_state import Network
from baton.sim.fast.router import (
    arrive,
    denied,
    enqueue,
    forget,
    forget_prefill,
    reserve,
    route_waiting,
)
from baton.sim.fast.state import State
from baton.sim.fast.steps import end_step, kick


@compiled
def run_until(s: State, net: Network, stop_us: float) -> int:
    """Everything that happens by then; why it returned."""
    num_requests, room = s.requests.shape[0], s.event_us.shape[0] - s.counts[c.C_MARGIN]
    while s.counts[c.C_NUM_OPEN] > 0:
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
            worker = _happen(s, net, event[c.V_KIND], event[c.V_ID], event[c.V_ATTEMPT])
            if worker >= 0:
                kick(s, net, worker)
        else:
            s.counts[c.C_ARRIVED] += 1
            after(s, s.numbers[c.N_IN_US], c.E_ROUTER, arrived, 0)
    return c.DONE


@compiled
def _happen(s: State, net: Network, kind: int, number: int, attempt: int) -> int:
    """The worker that may have work now; -1 for none."""
    if kind == c.E_STEP:
        worker = s.lanes[number, c.L_WORKER]
        if s.workers[worker, c.W_LIFE] != attempt:
            return -1
        end_step(s, net, number)
        return int(worker)
    if kind == c.E_STAGE:
        return number
    if kind == c.E_HEARTBEAT:
        s.workers[number, c.W_IS_FULL] = 0
        route_waiting(s)
        return -1
    if s.requests[number, c.R_ATTEMPT] != attempt:
        return -1
    return _happen_to(s, kind, number)


@compiled
def _happen_to(s: State, kind: int, request: int) -> int:
    """Something happens to a request."""
    one, worker = s.requests[request], -1
    if kind == c.E_PREFILL:
        enqueue(s, request)
        worker = one[c.R_PREFILL]
    elif kind == c.E_PUBLISH:
        publish(s, request)
        worker = one[c.R_DECODE]
    elif kind == c.E_RELEASE:
        release_source(s, request)
        worker = one[c.R_PREFILL]
    elif kind == c.E_RESERVE:
        reserve(s, request)
    elif kind == c.E_KNOWN:
        forget_prefill(s, request)
    else:
        _happen_at_router(s, kind, request)
    return int(worker)


@compiled
def _happen_at_router(s: State, kind: int, request: int) -> None:
    is_free = True
    if kind == c.E_ROUTER:
        is_free = arrive(s, request)
    elif kind == c.E_DONE:
        forget(s, request)
    elif kind == c.E_DENIED:
        denied(s, request)
    if is_free:
        route_waiting(s)
