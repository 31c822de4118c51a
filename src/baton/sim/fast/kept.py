"""Prefixes in a worker's memory: held by requests, found again, evicted when room is needed.

Of W_NUM_BLOCKS a worker has W_FREE that hold nothing; of the rest, each hash block that `prefixes`
knows takes W_PER_HASH, and everything else is requests' own.
"""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.extras import Extras
from baton.sim.fast.prefixes import NUM_HELD, NUM_IDLE, evict, hold, let_go, num_found, publish
from baton.sim.fast.state import Ints, State


@compiled
def free_up(s: State, x: Extras | None, number: int, num_blocks: int) -> bool:
    """See that so many blocks hold nothing, giving up idle prefixes; False where it cannot be."""
    worker = s.workers[number]
    missing = num_blocks - worker[c.W_FREE]
    if missing <= 0:
        return True
    if x is not None:
        per_hash = worker[c.W_PER_HASH]
        if per_hash == 0:
            return False
        num_hashes = (missing + per_hash - 1) // per_hash
        if num_hashes > x.prefixes.workers[number, NUM_IDLE]:
            return False
        worker[c.W_FREE] += per_hash * evict(x.prefixes, number, num_hashes)
        return True
    return False


@compiled
def num_takeable(s: State, x: Extras | None, number: int) -> int:
    """Blocks that hold nothing, or idle prefixes."""
    num_blocks = s.workers[number, c.W_FREE]
    if x is not None:
        num_blocks += s.workers[number, c.W_PER_HASH] * x.prefixes.workers[number, NUM_IDLE]
    return int(num_blocks)


@compiled
def hold_prefix(
    s: State, x: Extras | None, number: int, request: int, at_most: int
) -> tuple[int, int]:
    """Pin the leading whole hash blocks of its prompt that are here: the chain, and how many."""
    if x is not None and s.workers[number, c.W_PER_HASH] > 0:
        num_hashes = at_most // s.counts[c.C_PER_HASH]
        num_hashes = min(num_hashes, num_found(x.prefixes, number, request))
        return hold(x.prefixes, number, request, num_hashes), int(num_hashes)
    return 0, 0


@compiled
def name_prompt(
    s: State, x: Extras | None, number: int, request: int, chain: int, found: int
) -> tuple[int, int]:
    """The rest of its prompt's whole blocks becomes a prefix; the chain, and own blocks less.

    Where another request had made one known meanwhile, that one is shared and a copy is free.
    """
    if x is not None:
        worker = s.workers[number]
        per_hash = worker[c.W_PER_HASH]
        if per_hash == 0:
            return chain, 0
        num_hashes = s.requests[request, c.R_PROMPT] // s.counts[c.C_PER_HASH]
        known = x.prefixes.offsets[request + 1] - x.prefixes.offsets[request]
        num_named = min(num_hashes, known) - found
        if num_named <= 0:
            return chain, 0
        before = x.prefixes.workers[number, NUM_HELD]
        chain = publish(x.prefixes, number, request, chain, found, found + num_named)
        num_new = x.prefixes.workers[number, NUM_HELD] - before
        worker[c.W_FREE] += per_hash * (num_named - num_new)
        return chain, num_named
    return chain, 0


@compiled
def name_at_decode(s: State, x: Extras | None, number: int, request: int) -> None:
    """A whole prompt is in the memory of the worker that decodes it."""
    one = s.requests[request]
    chain, named = name_prompt(s, x, number, request, one[c.R_CHAIN], one[c.R_CHAINED])
    one[c.R_CHAIN] = chain
    one[c.R_CHAINED] += named
    one[c.R_BLOCKS] -= named * s.workers[number, c.W_PER_HASH]


@compiled
def name_at_source(s: State, x: Extras | None, request: int) -> None:
    """The same at the worker that computed it for another one."""
    one = s.requests[request]
    number, chain = one[c.R_PREFILL], one[c.R_SOURCE_CHAIN]
    chain, named = name_prompt(s, x, number, request, chain, one[c.R_SOURCE_CHAINED])
    one[c.R_SOURCE_CHAIN] = chain
    one[c.R_SOURCE_CHAINED] += named
    one[c.R_SOURCE_BLOCKS] -= named * s.workers[number, c.W_PER_HASH]


@compiled
def drop_chain(x: Extras | None, number: int, chain: int) -> None:
    """A request needs its prefix no longer; it stays until its room is needed."""
    if x is not None:
        let_go(x.prefixes, number, chain)


@compiled
def tokens_of(s: State, num_hashes: int) -> int:
    """Tokens of so many hash blocks."""
    return int(num_hashes * s.counts[c.C_PER_HASH])


@compiled
def note_peak(s: State, x: Extras | None, number: int) -> None:
    """The most that requests held at once."""
    worker = s.workers[number]
    held = worker[c.W_NUM_BLOCKS] - num_takeable(s, x, number)
    worker[c.W_PEAK_BLOCKS] = max(worker[c.W_PEAK_BLOCKS], held)


@compiled
def take_blocks(s: State, x: Extras | None, number: int, num_blocks: int) -> bool:
    """False, and nothing taken, where they cannot be had."""
    worker = s.workers[number]
    if not free_up(s, x, number, num_blocks):
        return False
    worker[c.W_FREE] -= num_blocks
    worker[c.W_TAKEN] += num_blocks
    return True


@compiled
def num_blocks_for(worker: Ints, num_tokens: int) -> int:
    """Whole blocks that hold so many tokens."""
    size = worker[c.W_BLOCK_SIZE]
    return int((num_tokens + size - 1) // size)
