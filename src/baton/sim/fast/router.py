"""The router: who waits for a route, who is refused, and who starts."""

import math

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast import routes_fleet as f
from baton.sim.fast.accounts import can_hold, enter, forget, is_open
from baton.sim.fast.admission import is_refused, join_open, leave_open
from baton.sim.fast.ends import REJECTED, TOO_LARGE, end_request
from baton.sim.fast.events import after
from baton.sim.fast.extras import Extras
from baton.sim.fast.fetches import begin_fetch
from baton.sim.fast.network_state import Network
from baton.sim.fast.questions import ask
from baton.sim.fast.queues import push_back, push_front, unlink
from baton.sim.fast.spill import spill_route
from baton.sim.fast.state import Ints, State


@compiled
def notice_us(s: State) -> float:
    """When a request that came now is seen: now, or when the steps that run are done."""
    seen_us = math.inf
    for number in range(s.workers.shape[0]):
        worker, now_us = s.workers[number], s.numbers[c.N_NOW_US]
        lane = worker[c.W_FIRST_LANE]
        if worker[c.W_ROLE] == c.DECODE:
            continue
        is_late = worker[c.W_LOOKS_AHEAD] > 0 and s.lanes[lane, c.L_IS_BUSY] > 0
        if not is_late or s.lane_us[lane, c.L_BEGAN_US] >= now_us:
            return float(now_us)
        seen_us = min(seen_us, s.lane_us[lane, c.L_END_US])
    return float(seen_us)


@compiled
def arrive(s: State, request: int) -> bool:
    """A request waits for its route, or is refused or not seen yet: False."""
    wait_us = notice_us(s) - s.numbers[c.N_NOW_US]
    if wait_us > 0.0:
        after(s, wait_us, c.E_ROUTER, request, s.requests[request, c.R_ATTEMPT])
        return False
    s.request_us[request, c.R_NOTICED_US] = s.numbers[c.N_NOW_US]
    if not _fits_somewhere(s, request):
        end_request(s, request, TOO_LARGE)
        return False
    most = s.counts[c.C_MAX_WAITING]
    if most > 0 and s.counts[c.C_ROUTER_NUM] >= most:
        end_request(s, request, REJECTED)
        return False
    wait(s, request, False)
    return True


@compiled
def _fits_somewhere(s: State, request: int) -> bool:
    num_tokens = s.requests[request, c.R_PROMPT]
    prefills = decodes = False
    for number in range(s.workers.shape[0]):
        worker = s.workers[number]
        room = worker[c.W_NUM_BLOCKS] * worker[c.W_BLOCK_SIZE]
        if worker[c.W_ROLE] != c.DECODE and num_tokens <= room:
            prefills = True
        if worker[c.W_ROLE] != c.PREFILL and num_tokens + 1 <= room:
            decodes = True
    return prefills and decodes


@compiled
def wait(s: State, request: int, in_front: bool) -> None:
    """Its turn for a route comes."""
    s.requests[request, c.R_PHASE] = c.WAITING
    s.counts[c.C_ROUTER_NUM] += 1
    if in_front:
        push_front(s.requests, s.counts, c.C_ROUTER_HEAD, request)
    else:
        push_back(s.requests, s.counts, c.C_ROUTER_HEAD, request)


@compiled
def _leave_queue(s: State, request: int) -> None:
    unlink(s.requests, s.counts, c.C_ROUTER_HEAD, request)
    s.counts[c.C_ROUTER_NUM] -= 1


@compiled
def next_waiting(s: State) -> int:
    """Whose turn it is; -1 for nobody."""
    if s.counts[c.C_ROUTER_HEAD] == 0:
        return -1
    if s.counts[c.C_HEAP] > s.event_us.shape[0] - s.counts[c.C_MARGIN]:
        after(s, 0.0, c.E_AGAIN, 0, 0)  # the heap grows first
        return -1
    return int(s.counts[c.C_ROUTER_HEAD] - 1)


@compiled
def find_route(s: State, x: Extras | None, request: int) -> int:
    """A pair, found in C_SOURCE and C_TARGET; a refusal; or no room."""
    counts, one = s.counts, s.requests[request]
    counts[c.C_REUSED] = 0
    if x is not None:
        x.fleet.counts[f.FETCH_OWNER] = -1  # who asks no policy fetches nothing
    if counts[c.C_SPILL] > 0:
        counts[c.C_SOURCE], counts[c.C_TARGET] = spill_route(s, request)
    elif x is not None:
        answer = ask(s, x, request, one[c.R_FETCH] == 0, one[c.R_FETCH] - 1)
        if answer == f.ROUTED:
            source = x.fleet.counts[f.CHOSEN_PREFILL]
            num_hashes = min(x.fleet.loads[source, f.DEPTH], f.max_cached(x.fleet))
            counts[c.C_SOURCE], counts[c.C_TARGET] = source, x.fleet.counts[f.CHOSEN_DECODE]
            counts[c.C_REUSED] = x.fleet.counts[f.BLOCK_SIZE] * num_hashes
        is_asked = answer in (f.ROUTED, f.NO_ROOM) and one[c.R_PRODUCED] == 0
        if is_asked and is_refused(s, x, answer == f.ROUTED):
            return f.MISSES_TTFT
        return answer
    else:
        counts[c.C_SOURCE], counts[c.C_TARGET] = shortest_queue(s, request)
    return f.ROUTED if counts[c.C_SOURCE] >= 0 else f.NO_ROOM


@compiled
def take_route(s: State, net: Network, x: Extras | None, request: int, answer: int) -> bool:
    """Start, fetch or refuse; False while it has to wait."""
    if answer == f.NO_ROOM:
        return False
    if answer != f.ROUTED:
        _refuse(s, request, answer)
        return True
    if x is not None and x.fleet.counts[f.FETCH_OWNER] >= 0:
        if begin_fetch(s, net, x, request):
            _leave_queue(s, request)
        else:
            s.requests[request, c.R_FETCH] = -1
        return True
    _start(s, x, request)
    return True


@compiled
def _refuse(s: State, request: int, answer: int) -> None:
    _leave_queue(s, request)
    column = c.C_MISSED_TTFT if answer == f.MISSES_TTFT else c.C_MISSED_TPOT
    s.counts[column] += 1
    end_request(s, request, REJECTED)


@compiled
def shortest_queue(s: State, request: int) -> tuple[int, int]:
    """Fewest pending tokens, then the emptiest decode worker with room; -1 for none."""
    source = target = mixed = -1
    for number in range(s.workers.shape[0]):
        worker = s.workers[number]
        if worker[c.W_ROLE] == c.PREFILL:
            if is_open(worker) and (
                source < 0 or worker[c.W_PENDING] < s.workers[source, c.W_PENDING]
            ):
                source = number
        elif can_hold(s, worker, request):
            if worker[c.W_ROLE] == c.MIXED:
                if mixed < 0 or _is_shorter(worker, s.workers[mixed]):
                    mixed = number
            elif target < 0 or _is_emptier(worker, s.workers[target]):
                target = number
    if mixed >= 0:
        return mixed, mixed
    if source < 0 or target < 0:
        return -1, -1
    return source, target


@compiled
def _is_shorter(a: Ints, b: Ints) -> bool:
    if a[c.W_PENDING] != b[c.W_PENDING]:
        return bool(a[c.W_PENDING] < b[c.W_PENDING])
    return bool(a[c.W_ACTIVE] < b[c.W_ACTIVE])


@compiled
def _is_emptier(a: Ints, b: Ints) -> bool:
    if a[c.W_ACTIVE] != b[c.W_ACTIVE]:
        return bool(a[c.W_ACTIVE] < b[c.W_ACTIVE])
    return bool(a[c.W_NUM_BLOCKS] - a[c.W_ACCOUNT] > b[c.W_NUM_BLOCKS] - b[c.W_ACCOUNT])


@compiled
def _start(s: State, x: Extras | None, request: int) -> None:
    """Its rows and blocks go on the accounts, and the decode worker is asked for room."""
    source, target = s.counts[c.C_SOURCE], s.counts[c.C_TARGET]
    one = s.requests[request]
    _leave_queue(s, request)
    if one[c.R_FETCH] > 0:
        one[c.R_FETCH] = -1
    one[c.R_ATTEMPT] += 1
    one[c.R_PHASE] = c.ROUTED
    enter(s, request, source, target, s.counts[c.C_REUSED])
    join_open(s, x, request, source)
    after(s, s.numbers[c.N_CONTROL_US], c.E_RESERVE, request, one[c.R_ATTEMPT])


@compiled
def denied(s: State, request: int) -> None:
    """No room: it waits in front, and that worker is asked again when somebody has left it."""
    target = s.requests[request, c.R_DECODE]
    s.counts[c.C_DENIED] += 1
    forget(s, request)
    leave_open(s, request)
    s.workers[target, c.W_IS_FULL] = 1
    _await_heartbeat(s, target)
    wait(s, request, True)


@compiled
def _await_heartbeat(s: State, number: int) -> None:
    """The next word of a worker that denied says that it may be asked again."""
    period_us, now_us = s.numbers[c.N_HEARTBEAT_US], s.numbers[c.N_NOW_US]
    if period_us > 0.0:
        next_us = period_us * (math.floor(now_us / period_us) + 1.0)
        after(s, next_us - now_us + s.numbers[c.N_CONTROL_US], c.E_HEARTBEAT, number, 0)
