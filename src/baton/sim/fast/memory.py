"""Blocks of a worker: for prompts that start here, and taken away from decodes when short."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.decodes import choose_victim, grow, leave_lane, num_needed
from baton.sim.fast.extras import Extras
from baton.sim.fast.kept import (
    drop_chain,
    free_up,
    hold_prefix,
    note_peak,
    num_blocks_for,
    num_takeable,
    take_blocks,
    tokens_of,
)
from baton.sim.fast.queues import push_front
from baton.sim.fast.state import Ints, State


@compiled
def admit_prompt(s: State, x: Extras | None, number: int, request: int) -> bool:
    """Blocks for a prompt that has none: new at a prefill worker, or preempted."""
    one, worker = s.requests[request], s.workers[number]
    num_tokens = one[c.R_PROMPT] + one[c.R_PRODUCED]
    is_source = one[c.R_AT_PREFILL] > 0
    if (one[c.R_SOURCE_BLOCKS] if is_source else one[c.R_BLOCKS]) > 0:
        return True
    chain, found = hold_prefix(s, x, number, request, num_tokens - 1)
    cached = tokens_of(s, found)
    wanted = num_tokens if is_source else num_tokens + 1
    num_blocks, num_kept = num_blocks_for(worker, wanted - cached), _num_kept(worker, one)
    hidden = worker[c.W_JUST_FREED]
    if num_takeable(s, x, number) < num_blocks + hidden:
        drop_chain(x, number, chain)
        return False
    take_blocks(s, x, number, num_blocks)
    if is_source:
        one[c.R_SOURCE_BLOCKS] = num_blocks
        one[c.R_SOURCE_CHAIN], one[c.R_SOURCE_CHAINED] = chain, found
        one[c.R_COMPUTED] = one[c.R_CACHED] = cached
    else:
        one[c.R_BLOCKS] = num_blocks
        one[c.R_CHAIN], one[c.R_CHAINED] = chain, found
        if one[c.R_PRODUCED] == 0:
            one[c.R_CACHED] = cached
        one[c.R_COMPUTED] = max(cached, num_kept * worker[c.W_BLOCK_SIZE])
        worker[c.W_TAKEN] -= num_kept
        worker[c.W_NUM_SHORT] -= 1
    note_peak(s, x, number)
    return True


@compiled
def _num_kept(worker: Ints, one: Ints) -> int:
    """Of the blocks that it gave back, those that are still as it left them."""
    if worker[c.W_KEEPS_PREEMPTED] == 0:
        return 0
    num_lost = max(0, worker[c.W_TAKEN] - one[c.R_KEPT_MARK])
    return int(max(0, one[c.R_KEPT] - num_lost))


@compiled
def make_room(s: State, x: Extras | None, number: int, lane: int) -> None:
    """The next row of every decode gets its place; when blocks are short somebody yields."""
    needed = num_needed(s, lane)
    while needed > num_takeable(s, x, number):
        preempt(s, x, number, choose_victim(s, lane))
        needed = num_needed(s, lane)
    if needed > 0:
        free_up(s, x, number, needed)
    grow(s, lane)
    if needed > 0:
        note_peak(s, x, number)


@compiled
def preempt(s: State, x: Extras | None, number: int, request: int) -> None:
    """Its blocks are given back; it waits in front, and recomputes its rows here."""
    one, worker = s.requests[request], s.workers[number]
    leave_lane(s, request)
    # Its next token has no K/V yet. Blocks that were free before it are taken before its own.
    num_tokens = one[c.R_PROMPT] + one[c.R_PRODUCED] - 1
    one[c.R_KEPT] = min(one[c.R_BLOCKS], num_tokens // worker[c.W_BLOCK_SIZE])
    num_others = worker[c.W_FREE] + one[c.R_BLOCKS] - one[c.R_KEPT]
    one[c.R_KEPT_MARK] = worker[c.W_TAKEN] + num_others
    worker[c.W_FREE] += one[c.R_BLOCKS]
    worker[c.W_NUM_SHORT] += 1
    drop_chain(x, number, one[c.R_CHAIN])
    one[c.R_BLOCKS] = one[c.R_CHAIN] = one[c.R_CHAINED] = one[c.R_COMPUTED] = 0
    one[c.R_PREEMPTED] += 1
    one[c.R_PHASE] = c.QUEUED
    s.counts[c.C_PREEMPTIONS] += 1
    push_front(s.requests, worker, c.W_HEAD, request)
