"""First tokens, last tokens, and what becomes free with them."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.decodes import join_lane
from baton.sim.fast.events import after
from baton.sim.fast.extras import Extras
from baton.sim.fast.gaps import count_gap
from baton.sim.fast.kept import drop_chain
from baton.sim.fast.queues import push_back
from baton.sim.fast.result import End
from baton.sim.fast.state import State

COMPLETED, TOO_LARGE, REJECTED = int(End.COMPLETED), int(End.TOO_LARGE), int(End.REJECTED)


@compiled
def end_request(s: State, request: int, code: int) -> None:
    """It is over, once."""
    one = s.requests[request]
    one[c.R_END], one[c.R_PHASE] = code, c.ENDED
    s.counts[c.C_NUM_OPEN] -= 1
    end_us = s.request_us[request, c.R_LAST_US]
    if not end_us >= 0.0:
        end_us = s.numbers[c.N_NOW_US]
    s.numbers[c.N_DURATION_US] = max(s.numbers[c.N_DURATION_US], end_us)


@compiled
def draw_token(s: State, request: int) -> None:
    """The next token of a prompt that is computed; the first one starts the client's clock."""
    one, now_us = s.requests[request], s.numbers[c.N_NOW_US]
    if one[c.R_PRODUCED] == 0:
        s.request_us[request, c.R_FIRST_US] = _at_client(s)
    else:
        count_gap(s.gaps, now_us - s.request_us[request, c.R_TOKEN_US], 1)
    s.request_us[request, c.R_TOKEN_US] = now_us
    one[c.R_PRODUCED] += 1


@compiled
def _at_client(s: State) -> float:
    return float(s.numbers[c.N_NOW_US] + s.numbers[c.N_CONTROL_US] + s.numbers[c.N_OUT_US])


@compiled
def go_on(s: State, x: Extras | None, number: int, request: int) -> None:
    """After a token from a prompt: decode in the emptiest lane of this worker, or end."""
    one, worker = s.requests[request], s.workers[number]
    if one[c.R_PRODUCED] >= one[c.R_OUTPUT]:
        finish(s, x, number, request)
        return
    if worker[c.W_POLICY] == c.STATIC and one[c.R_PHASE] == c.MOVING:
        # It waits for the next batch, with one row to run.
        one[c.R_COMPUTED] = one[c.R_PROMPT] + one[c.R_PRODUCED] - 1
        queue_up(s, number, request)
        return
    lane = worker[c.W_FIRST_LANE]
    for other in range(lane + 1, worker[c.W_FIRST_LANE] + worker[c.W_NUM_LANES]):
        if s.lanes[other, c.L_NUM_DECODES] < s.lanes[lane, c.L_NUM_DECODES]:
            lane = other
    join_lane(s, lane, request)


@compiled
def finish(s: State, x: Extras | None, number: int, request: int) -> None:
    """Its last token was drawn."""
    one = s.requests[request]
    s.request_us[request, c.R_LAST_US] = _at_client(s)
    end_request(s, request, COMPLETED if one[c.R_PRODUCED] >= one[c.R_OUTPUT] else TOO_LARGE)
    if s.workers[number, c.W_POLICY] == c.STATIC:
        lane = s.workers[number, c.W_FIRST_LANE]
        one[c.R_NEXT], s.lanes[lane, c.L_HELD] = s.lanes[lane, c.L_HELD], request + 1
    else:
        let_go(s, x, number, request)


@compiled
def queue_up(s: State, number: int, request: int) -> None:
    """Behind the prompts that wait at a worker."""
    one, worker = s.requests[request], s.workers[number]
    worker[c.W_NUM_ORDERS] += 1
    one[c.R_PHASE] = c.QUEUED
    one[c.R_ORDER], one[c.R_STARTED] = worker[c.W_NUM_ORDERS], 0
    push_back(s.requests, worker, c.W_HEAD, request)


@compiled
def release_held(s: State, x: Extras | None, number: int) -> None:
    """A static batch is over: whoever finished before its last member goes with it."""
    lane = s.workers[number, c.W_FIRST_LANE]
    link = s.lanes[lane, c.L_HELD]
    s.lanes[lane, c.L_HELD] = 0
    while link > 0:
        following = s.requests[link - 1, c.R_NEXT]
        let_go(s, x, number, link - 1)
        link = following


@compiled
def let_go(s: State, x: Extras | None, number: int, request: int) -> None:
    """Its blocks are free, and the router hears of its end."""
    one, worker = s.requests[request], s.workers[number]
    worker[c.W_FREE] += one[c.R_BLOCKS]
    if worker[c.W_LOOKS_AHEAD] > 0:
        worker[c.W_JUST_FREED] += one[c.R_BLOCKS]
        worker[c.W_JUST_ENDED] += 1
    drop_chain(x, number, one[c.R_CHAIN])
    one[c.R_BLOCKS] = one[c.R_CHAIN] = one[c.R_CHAINED] = 0
    after(s, s.numbers[c.N_CONTROL_US], c.E_DONE, request, one[c.R_ATTEMPT])
