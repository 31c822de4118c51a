"""Decodes of a lane: a step costs the same however many there are.

All of them get one token in each step, so a request that joins at counter k with r tokens to come
leaves at k + r: it stands in a wheel of lists by that counter. Blocks are counted alike: a request
needs its first block beyond its reservation at a counter that is known when it joins, and another
one every block size further on.
"""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.queues import push_back, unlink
from baton.sim.fast.state import Ints, State


@compiled
def join_lane(s: State, lane: int, request: int) -> None:
    """It has all K/V but that of its latest token, and waits for the next one."""
    one, here = s.requests[request], s.lanes[lane]
    worker = s.workers[here[c.L_WORKER]]
    num_tokens = one[c.R_PROMPT] + one[c.R_PRODUCED]
    counter = here[c.L_COUNTER]
    one[c.R_PHASE], one[c.R_LANE] = c.DECODING, lane
    one[c.R_JOINED], one[c.R_BASE] = counter, num_tokens - counter
    here[c.L_GROWN] = max(here[c.L_GROWN], counter)
    # A context longer than the pool ends there.
    longest = worker[c.W_NUM_BLOCKS] * worker[c.W_BLOCK_SIZE] + 1
    last = min(one[c.R_PROMPT] + one[c.R_OUTPUT], longest)
    one[c.R_FINISH] = counter + max(1, last - num_tokens)
    one[c.R_GROW] = _num_slots(s, worker, one) + 1 - one[c.R_BASE]
    here[c.L_NUM_DECODES] += 1
    here[c.L_NUM_SEEN] += num_tokens
    worker[c.W_RESERVED] += one[c.R_PROMPT] + one[c.R_BOUND]
    push_back(s.requests, here, c.L_HEAD, request)
    _enter_wheel(s, lane, request)


@compiled
def _num_slots(s: State, worker: Ints, one: Ints) -> int:
    """Tokens that fit into its own blocks and the prefix that it shares."""
    shared = one[c.R_CHAINED] * s.counts[c.C_PER_HASH]
    return int(one[c.R_BLOCKS] * worker[c.W_BLOCK_SIZE] + shared)


@compiled
def _enter_wheel(s: State, lane: int, request: int) -> None:
    one = s.requests[request]
    slot = one[c.R_FINISH] % s.finishing.shape[1]
    first = s.finishing[lane, slot]
    one[c.R_WHEEL_NEXT], one[c.R_WHEEL_PREVIOUS] = first, 0
    if first > 0:
        s.requests[first - 1, c.R_WHEEL_PREVIOUS] = request + 1
    s.finishing[lane, slot] = request + 1
    if one[c.R_GROW] < one[c.R_FINISH]:
        s.growing[lane, one[c.R_GROW] % (s.growing.shape[1] // 2)] += 1


@compiled
def _leave_wheel(s: State, lane: int, request: int) -> None:
    one, size = s.requests[request], s.growing.shape[1] // 2
    following, previous = one[c.R_WHEEL_NEXT], one[c.R_WHEEL_PREVIOUS]
    if previous > 0:
        s.requests[previous - 1, c.R_WHEEL_NEXT] = following
    else:
        s.finishing[lane, one[c.R_FINISH] % s.finishing.shape[1]] = following
    if following > 0:
        s.requests[following - 1, c.R_WHEEL_PREVIOUS] = previous
    if one[c.R_GROW] >= one[c.R_FINISH]:
        return
    if one[c.R_GROW] >= s.lanes[lane, c.L_GROWN]:
        s.growing[lane, one[c.R_GROW] % size] -= 1
    else:
        block_size = s.workers[s.lanes[lane, c.L_WORKER], c.W_BLOCK_SIZE]
        s.growing[lane, size + one[c.R_GROW] % block_size] -= 1


@compiled
def blocks_of(s: State, request: int) -> int:
    """What a decode holds by now, its reservation and what it grew by."""
    one = s.requests[request]
    lane = one[c.R_LANE]
    beyond = s.lanes[lane, c.L_GROWN] - 1 - one[c.R_GROW]
    if beyond < 0:
        return int(one[c.R_BLOCKS])
    block_size = s.workers[s.lanes[lane, c.L_WORKER], c.W_BLOCK_SIZE]
    return int(one[c.R_BLOCKS] + 1 + beyond // block_size)


@compiled
def leave_lane(s: State, request: int) -> None:
    """Out of its lane, with the tokens and blocks that it has there by now."""
    one = s.requests[request]
    lane = one[c.R_LANE]
    here = s.lanes[lane]
    _leave_wheel(s, lane, request)
    num_tokens = here[c.L_COUNTER] + one[c.R_BASE]
    one[c.R_BLOCKS] = blocks_of(s, request)
    one[c.R_PRODUCED] = num_tokens - one[c.R_PROMPT]
    if one[c.R_JOINED] < here[c.L_COUNTER]:
        s.request_us[request, c.R_TOKEN_US] = s.lane_us[lane, c.L_TOKEN_US]
    here[c.L_NUM_DECODES] -= 1
    here[c.L_NUM_SEEN] -= num_tokens
    s.workers[here[c.L_WORKER], c.W_RESERVED] -= one[c.R_PROMPT] + one[c.R_BOUND]
    unlink(s.requests, here, c.L_HEAD, request)


@compiled
def pass_over(s: State, request: int) -> int:
    """It takes no part in the step that begins: everything of it happens one counter later.

    Returns the tokens that it would have seen.
    """
    one = s.requests[request]
    lane = one[c.R_LANE]
    here = s.lanes[lane]
    _leave_wheel(s, lane, request)
    if one[c.R_JOINED] < here[c.L_COUNTER]:
        s.request_us[request, c.R_TOKEN_US] = s.lane_us[lane, c.L_TOKEN_US]
    num_tokens = here[c.L_COUNTER] + one[c.R_BASE]
    one[c.R_BLOCKS] = blocks_of(s, request)
    one[c.R_JOINED] = here[c.L_COUNTER] + 1
    one[c.R_BASE] -= 1
    one[c.R_FINISH] += 1
    one[c.R_GROW] = _num_slots(s, s.workers[here[c.L_WORKER]], one) + 1 - one[c.R_BASE]
    _enter_wheel(s, lane, request)
    here[c.L_NUM_SEEN] -= 1  # the step adds one for every decode
    return int(num_tokens)


@compiled
def num_needed(s: State, lane: int) -> int:
    """Blocks that the decodes of a lane need before the next step."""
    counter, size = s.lanes[lane, c.L_COUNTER], s.growing.shape[1] // 2
    if s.lanes[lane, c.L_GROWN] > counter:
        return 0  # a step that left the decodes out took them already
    block_size = s.workers[s.lanes[lane, c.L_WORKER], c.W_BLOCK_SIZE]
    return int(s.growing[lane, counter % size] + s.growing[lane, size + counter % block_size])


@compiled
def grow(s: State, lane: int) -> None:
    """Take them."""
    counter, size = s.lanes[lane, c.L_COUNTER], s.growing.shape[1] // 2
    if s.lanes[lane, c.L_GROWN] > counter:
        return
    worker = s.workers[s.lanes[lane, c.L_WORKER]]
    needed = num_needed(s, lane)
    worker[c.W_FREE] -= needed
    worker[c.W_TAKEN] += needed
    remainder = size + counter % worker[c.W_BLOCK_SIZE]
    s.growing[lane, remainder] += s.growing[lane, counter % size]
    s.growing[lane, counter % size] = 0
    s.lanes[lane, c.L_GROWN] = counter + 1


@compiled
def choose_victim(s: State, lane: int) -> int:
    """The latest that was not preempted too often, never the first; else the latest after all."""
    most = s.workers[s.lanes[lane, c.L_WORKER], c.W_MAX_PREEMPTIONS]
    first, last = s.lanes[lane, c.L_HEAD], s.lanes[lane, c.L_TAIL]
    at = last
    while at != first:
        if most == 0 or s.requests[at - 1, c.R_PREEMPTED] < most:
            return int(at - 1)
        at = s.requests[at - 1, c.R_PREVIOUS]
    return int(last - 1)
