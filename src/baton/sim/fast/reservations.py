"""Room at the worker that will decode a request, taken before its prompt is computed."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.ends import queue_up
from baton.sim.fast.events import after
from baton.sim.fast.extras import Extras
from baton.sim.fast.kept import (
    drop_chain,
    hold_prefix,
    note_peak,
    num_blocks_for,
    tokens_of,
)
from baton.sim.fast.state import State
from baton.sim.fast.stretches import settle, take_beside


@compiled
def reserve(s: State, x: Extras | None, request: int) -> None:
    """The decode worker holds room for all tokens and some growth, or denies."""
    one, control_us = s.requests[request], s.numbers[c.N_CONTROL_US]
    if not _reserve(s, x, one[c.R_DECODE], request):
        after(s, control_us, c.E_DENIED, request, one[c.R_ATTEMPT])
        return
    note_peak(s, x, one[c.R_DECODE])
    after(s, 2.0 * control_us, c.E_PREFILL, request, one[c.R_ATTEMPT])


@compiled
def _reserve(s: State, x: Extras | None, number: int, request: int) -> bool:
    one, worker = s.requests[request], s.workers[number]
    num_tokens, is_local = one[c.R_PROMPT] + one[c.R_PRODUCED], one[c.R_PREFILL] == number
    one[c.R_FLOW], one[c.R_COMPUTED], one[c.R_NEEDS_MOVE] = 0, 0, num_tokens
    if worker[c.W_QUEUES] > 0:
        worker[c.W_NUM_SHORT] += 1
        return True
    if worker[c.W_NUM_SHORT] > 0:
        return False
    left = max(1, one[c.R_BOUND] - one[c.R_PRODUCED])
    growth = left if worker[c.W_RESERVES_WHOLE] > 0 else min(left, max(1, worker[c.W_GROWTH]))
    wanted = min(num_tokens + growth, worker[c.W_NUM_BLOCKS] * worker[c.W_BLOCK_SIZE])
    chain, found = 0, 0
    if is_local:  # at least its last row is computed, to draw from it
        chain, found = hold_prefix(s, x, number, request, num_tokens - 1)
    elif s.counts[c.C_ONLY_MISSING] > 0:
        chain, found = hold_prefix(s, x, number, request, num_tokens)
    cached = tokens_of(s, found)
    num_blocks = num_blocks_for(worker, wanted - cached)
    if not take_beside(s, x, number, num_blocks):
        drop_chain(x, number, chain)
        return False
    one[c.R_BLOCKS], one[c.R_CHAIN], one[c.R_CHAINED] = num_blocks, chain, found
    one[c.R_COMPUTED] = cached if is_local else 0
    if is_local:
        one[c.R_CACHED] = cached
    one[c.R_NEEDS_MOVE] = num_tokens - cached
    return True


@compiled
def enqueue(s: State, x: Extras | None, request: int) -> None:
    """Its prompt is at the worker that computes it."""
    one = s.requests[request]
    settle(s, x, one[c.R_PREFILL])
    one[c.R_AT_PREFILL] = 1 if one[c.R_PREFILL] != one[c.R_DECODE] else 0
    queue_up(s, one[c.R_PREFILL], request)
