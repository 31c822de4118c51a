"""Blocks of a worker: taken, given back, and taken away from decodes when they run short."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.decodes import choose_victim, grow, leave_lane, num_needed
from baton.sim.fast.queues import push_front
from baton.sim.fast.state import Ints, State


@compiled
def num_blocks_for(worker: Ints, num_tokens: int) -> int:
    """Whole blocks that hold so many tokens."""
    size = worker[c.W_BLOCK_SIZE]
    return int((num_tokens + size - 1) // size)


@compiled
def take_blocks(worker: Ints, num_blocks: int) -> bool:
    """False, and nothing taken, where they are not free."""
    if num_blocks > worker[c.W_FREE]:
        return False
    worker[c.W_FREE] -= num_blocks
    worker[c.W_TAKEN] += num_blocks
    return True


@compiled
def note_peak(worker: Ints) -> None:
    """The most that was held at once."""
    held = worker[c.W_NUM_BLOCKS] - worker[c.W_FREE]
    worker[c.W_PEAK_BLOCKS] = max(worker[c.W_PEAK_BLOCKS], held)


@compiled
def admit_prompt(s: State, worker: Ints, request: int) -> bool:
    """Blocks for a prompt that has none: new at a prefill worker, or preempted."""
    one = s.requests[request]
    num_tokens = one[c.R_PROMPT] + one[c.R_PRODUCED]
    if one[c.R_AT_PREFILL] > 0:
        if one[c.R_SOURCE_BLOCKS] > 0:
            return True
        num_blocks = num_blocks_for(worker, num_tokens)
        if not take_blocks(worker, num_blocks):
            return False
        one[c.R_SOURCE_BLOCKS] = num_blocks
    else:
        if one[c.R_BLOCKS] > 0:
            return True
        num_blocks, num_found = num_blocks_for(worker, num_tokens + 1), _num_found(worker, one)
        if num_blocks + worker[c.W_JUST_FREED] > worker[c.W_FREE]:
            return False
        take_blocks(worker, num_blocks)
        one[c.R_BLOCKS] = num_blocks
        one[c.R_COMPUTED] = num_found * worker[c.W_BLOCK_SIZE]
        worker[c.W_TAKEN] -= num_found
        worker[c.W_NUM_SHORT] -= 1
    note_peak(worker)
    return True


@compiled
def _num_found(worker: Ints, one: Ints) -> int:
    """Of the blocks that it gave back, those that are still as it left them."""
    if worker[c.W_KEEPS_PREEMPTED] == 0:
        return 0
    num_lost = max(0, worker[c.W_TAKEN] - one[c.R_KEPT_MARK])
    return int(max(0, one[c.R_KEPT] - num_lost))


@compiled
def make_room(s: State, lane: int) -> None:
    """The next row of every decode gets its place; when blocks are short somebody yields."""
    worker = s.workers[s.lanes[lane, c.L_WORKER]]
    while num_needed(s, lane) > worker[c.W_FREE]:
        preempt(s, choose_victim(s, lane))
    grow(s, lane)
    note_peak(worker)


@compiled
def preempt(s: State, request: int) -> None:
    """Its blocks are given back; it waits in front, and recomputes its rows here."""
    one = s.requests[request]
    leave_lane(s, request)
    worker = s.workers[s.lanes[one[c.R_LANE], c.L_WORKER]]
    # Its next token has no K/V yet. Blocks that were free before it are taken before its own.
    num_tokens = one[c.R_PROMPT] + one[c.R_PRODUCED] - 1
    one[c.R_KEPT] = min(one[c.R_BLOCKS], num_tokens // worker[c.W_BLOCK_SIZE])
    num_others = worker[c.W_FREE] + one[c.R_BLOCKS] - one[c.R_KEPT]
    one[c.R_KEPT_MARK] = worker[c.W_TAKEN] + num_others
    worker[c.W_FREE] += one[c.R_BLOCKS]
    worker[c.W_NUM_SHORT] += 1
    one[c.R_BLOCKS] = one[c.R_COMPUTED] = 0
    one[c.R_PREEMPTED] += 1
    one[c.R_PHASE] = c.QUEUED
    s.counts[c.C_PREEMPTIONS] += 1
    push_front(s.requests, worker, c.W_HEAD, request)
