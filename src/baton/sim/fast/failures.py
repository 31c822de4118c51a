"""Workers that die: their K/V is gone, and whoever had some of it there starts again."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.accounts import forget
from baton.sim.fast.admission import leave_open
from baton.sim.fast.decodes import leave_lane
from baton.sim.fast.ends import release_held
from baton.sim.fast.events import after
from baton.sim.fast.extras import Extras
from baton.sim.fast.kept import drop_chain
from baton.sim.fast.network import cancel_flow
from baton.sim.fast.network_state import Network
from baton.sim.fast.prefixes import forget as forget_prefixes
from baton.sim.fast.queues import unlink
from baton.sim.fast.router import wait
from baton.sim.fast.state import State
from baton.sim.fast.stretches import settle


@compiled
def change_worker(s: State, net: Network, x: Extras | None, kind: int, number: int) -> None:
    """A worker dies or lives; then whoever waits is routed."""
    if kind == c.E_DOWN:
        go_down(s, net, x, number)
    else:
        come_up(s, number)
    after(s, 0.0, c.E_AGAIN, 0, 0)


@compiled
def go_down(s: State, net: Network, x: Extras | None, number: int) -> None:
    """A worker is gone with all that it held; an answer goes on where its client's tokens end."""
    worker = s.workers[number]
    worker[c.W_NUM_DOWN] += 1
    worker[c.W_IS_UP] = 0
    if worker[c.W_NUM_DOWN] > 1:
        return
    settle(s, x, number)
    release_held(s, x, number)
    for request in range(s.counts[c.C_ARRIVED]):
        if _needs(s, number, request):
            _take_out(s, net, x, request)
            _start_again(s, request)
        _lose(s, number, request)
    _empty(s, number)
    if x is not None:
        forget_prefixes(x.prefixes, number)


@compiled
def come_up(s: State, number: int) -> None:
    """It is back, empty."""
    worker = s.workers[number]
    worker[c.W_NUM_DOWN] -= 1
    if worker[c.W_NUM_DOWN] == 0:
        worker[c.W_IS_UP] = 1


@compiled
def _needs(s: State, number: int, request: int) -> bool:
    """Its attempt cannot go on without this worker."""
    one = s.requests[request]
    phase = one[c.R_PHASE]
    if phase == c.FETCHING:
        return bool(one[c.R_FETCH] - 1 == number or one[c.R_FETCH_OWNER] == number)
    if phase in (c.AWAY, c.WAITING, c.ENDED):
        return False
    if one[c.R_DECODE] == number:
        return True
    is_computing = phase == c.ROUTED or one[c.R_AT_PREFILL] > 0
    return bool(one[c.R_PREFILL] == number and is_computing)


@compiled
def _take_out(s: State, net: Network, x: Extras | None, request: int) -> None:
    """Off every list, lane, flow and account; what it holds is given back."""
    one, now_us = s.requests[request], s.numbers[c.N_NOW_US]
    if one[c.R_PHASE] == c.DECODING:
        lane = one[c.R_LANE]
        # The step under way is lost, and with it the token that it would have given.
        loses = s.lanes[lane, c.L_IS_BUSY] > 0 and s.lanes[lane, c.L_NUM_RUN] > 0
        loses = loses and one[c.R_JOINED] < s.lanes[lane, c.L_COUNTER]
        leave_lane(s, request)
        one[c.R_PRODUCED] -= 1 if loses else 0
    elif one[c.R_PHASE] == c.QUEUED:
        at = one[c.R_PREFILL] if one[c.R_AT_PREFILL] > 0 else one[c.R_DECODE]
        unlink(s.requests, s.workers[at], c.W_HEAD, request)
        if one[c.R_IN_STEP] > 0:
            _strike_out(s, at, request)
    if one[c.R_FLOW] > 0:
        cancel_flow(net, one[c.R_FLOW] - 1, now_us)
    if one[c.R_PHASE] == c.FETCHING:
        target = one[c.R_FETCH] - 1
        num_missing = one[c.R_FETCH_BLOCKS] - one[c.R_FETCH_FOUND]
        s.workers[target, c.W_FREE] += num_missing * s.workers[target, c.W_PER_HASH]
        drop_chain(x, target, one[c.R_FETCH_CHAIN])
        drop_chain(x, one[c.R_FETCH_OWNER], one[c.R_OWNER_CHAIN])
        one[c.R_FETCH_CHAIN] = one[c.R_OWNER_CHAIN] = 0
    if one[c.R_SOURCE_BLOCKS] > 0 or one[c.R_SOURCE_CHAIN] > 0:
        s.workers[one[c.R_PREFILL], c.W_FREE] += one[c.R_SOURCE_BLOCKS]
        drop_chain(x, one[c.R_PREFILL], one[c.R_SOURCE_CHAIN])
    if one[c.R_BLOCKS] > 0 or one[c.R_CHAIN] > 0:
        s.workers[one[c.R_DECODE], c.W_FREE] += one[c.R_BLOCKS]
        drop_chain(x, one[c.R_DECODE], one[c.R_CHAIN])
    forget(s, request)
    leave_open(s, request)


@compiled
def _strike_out(s: State, number: int, request: int) -> None:
    """Its chunk of the step under way counts for nobody."""
    worker = s.workers[number]
    for lane in range(worker[c.W_FIRST_LANE], worker[c.W_FIRST_LANE] + worker[c.W_NUM_LANES]):
        for k in range(s.lanes[lane, c.L_NUM_CHUNKS]):
            if s.chunks[lane, k, 0] == request:
                s.chunks[lane, k, 0] = -1


@compiled
def _start_again(s: State, request: int) -> None:
    one = s.requests[request]
    one[c.R_ATTEMPT] += 1
    one[c.R_FETCH] = -1
    one[c.R_FLOW] = one[c.R_IN_STEP] = one[c.R_AT_PREFILL] = one[c.R_COMPUTED] = 0
    one[c.R_SOURCE_BLOCKS] = one[c.R_SOURCE_CHAIN] = one[c.R_SOURCE_CHAINED] = 0
    one[c.R_BLOCKS] = one[c.R_CHAIN] = one[c.R_CHAINED] = 0
    s.counts[c.C_RESTARTED] += 1
    wait(s, request, True)


@compiled
def _lose(s: State, number: int, request: int) -> None:
    """Copies that would have been released there are gone already."""
    one = s.requests[request]
    if one[c.R_PREFILL] == number:
        one[c.R_SOURCE_BLOCKS] = one[c.R_SOURCE_CHAIN] = one[c.R_SOURCE_CHAINED] = 0


@compiled
def _empty(s: State, number: int) -> None:
    worker, now_us = s.workers[number], s.numbers[c.N_NOW_US]
    for lane in range(worker[c.W_FIRST_LANE], worker[c.W_FIRST_LANE] + worker[c.W_NUM_LANES]):
        here = s.lanes[lane]
        if here[c.L_IS_BUSY] > 0:
            unused_us = s.lane_us[lane, c.L_END_US] - max(now_us, s.lane_us[lane, c.L_BEGAN_US])
            s.worker_us[number, c.W_BUSY_US] -= min(unused_us, s.lane_us[lane, c.L_CHOSEN_US])
            s.counts[c.C_LOST_STEPS] += 1
        here[c.L_LIFE] += 1
        here[c.L_STRETCH] = 0
        here[c.L_IS_BUSY] = here[c.L_NUM_CHUNKS] = here[c.L_NUM_RUN] = here[c.L_NUM_PASSED] = 0
    for stage in range(c.W_STAGES, c.W_STAGES + worker[c.W_NUM_LANES]):
        s.worker_us[number, stage] = min(now_us, s.worker_us[number, stage])
    worker[c.W_FREE], worker[c.W_NUM_SHORT] = worker[c.W_NUM_BLOCKS], 0
    worker[c.W_IS_FULL] = worker[c.W_IS_MIXED] = 0
