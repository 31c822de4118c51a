"""The router: its queue, its accounts of workers, and what it asks of them."""

import math

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.ends import REJECTED, TOO_LARGE, end_request, queue_up
from baton.sim.fast.events import after
from baton.sim.fast.memory import note_peak, num_blocks_for, take_blocks
from baton.sim.fast.queues import push_back, push_front, unlink
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
    _wait(s, request, False)
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
def _wait(s: State, request: int, in_front: bool) -> None:
    s.requests[request, c.R_PHASE] = c.WAITING
    s.counts[c.C_ROUTER_NUM] += 1
    if in_front:
        push_front(s.requests, s.counts, c.C_ROUTER_HEAD, request)
    else:
        push_back(s.requests, s.counts, c.C_ROUTER_HEAD, request)


@compiled
def route_waiting(s: State) -> None:
    """Start attempts in order, while whose turn it is has a route."""
    while s.counts[c.C_ROUTER_HEAD] > 0:
        request = s.counts[c.C_ROUTER_HEAD] - 1
        source, target = shortest_queue(s, request)
        if source < 0:
            return
        unlink(s.requests, s.counts, c.C_ROUTER_HEAD, request)
        s.counts[c.C_ROUTER_NUM] -= 1
        _start(s, request, source, target)


@compiled
def is_open(worker: Ints) -> bool:
    """New requests may be routed to it."""
    return bool(worker[c.W_IS_UP] > 0 and worker[c.W_IS_CLOSED] == 0)


@compiled
def can_hold(s: State, worker: Ints, request: int) -> bool:
    """It takes new requests, and has the blocks of this one by the router's account."""
    if not is_open(worker) or worker[c.W_IS_FULL] > 0 or worker[c.W_ROLE] == c.PREFILL:
        return False
    if worker[c.W_QUEUES] > 0:
        return True
    if worker[c.W_ACTIVE] >= worker[c.W_MAX_ADMITTED]:
        return False
    num_tokens = s.requests[request, c.R_PROMPT] + s.requests[request, c.R_PRODUCED] + 1
    needed = num_blocks_for(worker, num_tokens)
    return bool(worker[c.W_NUM_BLOCKS] - worker[c.W_ACCOUNT] >= needed)


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
def _start(s: State, request: int, source: int, target: int) -> None:
    """Its rows and blocks go on the accounts, and the decode worker is asked for room."""
    one = s.requests[request]
    num_tokens = one[c.R_PROMPT] + one[c.R_PRODUCED]
    one[c.R_ATTEMPT] += 1
    one[c.R_PHASE] = c.ROUTED
    one[c.R_PREFILL], one[c.R_DECODE] = source, target
    one[c.R_PENDING] = num_tokens
    one[c.R_ACCOUNT] = num_blocks_for(s.workers[target], num_tokens + 1)
    s.workers[source, c.W_PENDING] += one[c.R_PENDING]
    s.workers[target, c.W_ACCOUNT] += one[c.R_ACCOUNT]
    s.workers[target, c.W_ACTIVE] += 1
    after(s, s.numbers[c.N_CONTROL_US], c.E_RESERVE, request, one[c.R_ATTEMPT])


@compiled
def forget_prefill(s: State, request: int) -> None:
    """The router knows that its prompt is computed, or will not be."""
    one = s.requests[request]
    if one[c.R_PREFILL] >= 0:
        s.workers[one[c.R_PREFILL], c.W_PENDING] -= one[c.R_PENDING]
    one[c.R_PENDING] = 0


@compiled
def forget(s: State, request: int) -> None:
    """Off every account."""
    forget_prefill(s, request)
    one = s.requests[request]
    if one[c.R_ACCOUNT] > 0:
        worker = s.workers[one[c.R_DECODE]]
        worker[c.W_ACCOUNT] -= one[c.R_ACCOUNT]
        worker[c.W_ACTIVE] -= 1
        worker[c.W_IS_FULL] = 0
        one[c.R_ACCOUNT] = 0


@compiled
def reserve(s: State, request: int) -> None:
    """The decode worker holds room for all tokens and some growth, or denies."""
    one, control_us = s.requests[request], s.numbers[c.N_CONTROL_US]
    worker = s.workers[one[c.R_DECODE]]
    num_tokens = one[c.R_PROMPT] + one[c.R_PRODUCED]
    left = max(1, one[c.R_BOUND] - one[c.R_PRODUCED])
    growth = left if worker[c.W_RESERVES_WHOLE] > 0 else min(left, max(1, worker[c.W_GROWTH]))
    wanted = min(num_tokens + growth, worker[c.W_NUM_BLOCKS] * worker[c.W_BLOCK_SIZE])
    num_blocks = num_blocks_for(worker, wanted)
    if worker[c.W_QUEUES] > 0:
        worker[c.W_NUM_SHORT] += 1
        num_blocks = 0
    elif worker[c.W_NUM_SHORT] > 0 or not take_blocks(worker, num_blocks):
        after(s, control_us, c.E_DENIED, request, one[c.R_ATTEMPT])
        return
    note_peak(worker)
    one[c.R_BLOCKS], one[c.R_COMPUTED] = num_blocks, 0
    one[c.R_NEEDS_MOVE] = num_tokens
    one[c.R_FLOW] = 0
    after(s, 2.0 * control_us, c.E_PREFILL, request, one[c.R_ATTEMPT])


@compiled
def enqueue(s: State, request: int) -> None:
    """Its prompt is at the worker that computes it."""
    one = s.requests[request]
    one[c.R_AT_PREFILL] = 1 if one[c.R_PREFILL] != one[c.R_DECODE] else 0
    queue_up(s, one[c.R_PREFILL], request)


@compiled
def denied(s: State, request: int) -> None:
    """No room: it waits in front, and that worker is asked again when somebody has left it."""
    target = s.requests[request, c.R_DECODE]
    s.counts[c.C_DENIED] += 1
    forget(s, request)
    s.workers[target, c.W_IS_FULL] = 1
    _await_heartbeat(s, target)
    _wait(s, request, True)


@compiled
def _await_heartbeat(s: State, number: int) -> None:
    """The next word of a worker that denied says that it may be asked again."""
    period_us, now_us = s.numbers[c.N_HEARTBEAT_US], s.numbers[c.N_NOW_US]
    if period_us > 0.0:
        next_us = period_us * (math.floor(now_us / period_us) + 1.0)
        after(s, next_us - now_us + s.numbers[c.N_CONTROL_US], c.E_HEARTBEAT, number, 0)
