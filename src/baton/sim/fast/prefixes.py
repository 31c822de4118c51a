"""K/V that workers keep by the hash blocks of prompts: what is found again, pinned and evicted.

How a loop uses it. Blocks are hash blocks of `tokens_per_hash` tokens, whatever a worker's own
block size is; requests are numbered as in the workload. Nothing here counts free memory: a worker's
`NUM_HELD` blocks are the part of its memory that stands here, pinned by requests or idle, and the
loop has the rest. Memory of a request that is neither is the loop's own to count.

    found = num_found(prefixes, worker, request)            # leading blocks that are here
    last = hold(prefixes, worker, request, found)           # pinned: they cannot be evicted
    ...evict(prefixes, worker, missing) as memory is needed, for anything
    last = publish(prefixes, worker, request, last, found, computed)
    let_go(prefixes, worker, last)                          # idle, and found until evicted

`last` is the chain that a request holds, by its last block (0: none): keep it for the request.
`publish` makes blocks known that the request has computed in memory of its own: `NUM_HELD` grows by
those that were not here yet, and they leave the request's own memory; of the others a copy was
here already, which the request now shares, so its own one can be given back. A request that drops
everything (preempted, cancelled) lets go. `forget` is a worker's death: call it when none of its
requests holds a chain any more, or forgets it in the same moment.

Least recently used goes first, and of one chain the last block first: whoever uses a block uses all
before it, so a block is never here without those before it, and what is found is a leading run.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.compiled import compiled
from baton.sim.fast.workload import FastWorkload

Ints = NDArray[np.int64]

# Columns of `blocks`. Links are index + 1; 0 is none.
ID, USES, BEFORE, OLDER, NEWER, OWNER = range(6)
"""OLDER links free places as well."""
# Columns of `workers`.
FIRST_PLACE, NUM_PLACES, FREE, NUM_HELD, NUM_IDLE, OLDEST, NEWEST = range(7)

_NOBODY = -1
"""Id of a block that is not in use."""
_FACTOR, _LOW_BITS, _SHIFT = 0x9E3779B1, 0x7FFFFFFF, 20
"""Of a multiplicative hash whose product stays below 2^63."""


class Prefixes(NamedTuple):
    """Which worker keeps which blocks; make one with `make_prefixes`."""

    offsets: Ints
    ids: Ints
    """Of all prompts, request by request."""
    table: Ints
    """Where each worker has each id in `blocks`: open addressing, linear probing, at most half
    full. It grows with what is kept and not with the workload."""
    blocks: Ints
    workers: Ints
    walking: Ints
    """Scratch: who still has every block of a walk."""


def make_prefixes(workload: FastWorkload, max_blocks: Ints) -> Prefixes:
    """For workers that keep at most so many hash blocks each; 0 keeps nothing."""
    num_workers, num_blocks = len(max_blocks), int(np.sum(max_blocks))
    workers = np.zeros((num_workers, 7), np.int64)
    workers[:, NUM_PLACES] = max_blocks
    workers[1:, FIRST_PLACE] = np.cumsum(max_blocks)[:-1]
    prefixes = Prefixes(
        offsets=workload.hash_offsets,
        ids=workload.hash_ids,
        table=np.zeros(2 << max(1, num_blocks).bit_length(), np.int64),
        blocks=np.zeros((max(1, num_blocks), 6), np.int64),
        workers=workers,
        walking=np.zeros(num_workers, np.int64),
    )
    for worker in range(num_workers):
        _empty(prefixes, worker)
    return prefixes


@compiled
def num_found(prefixes: Prefixes, worker: int, request: int) -> int:
    """Leading blocks of its prompt that the worker keeps."""
    first = prefixes.offsets[request]
    num_blocks = prefixes.offsets[request + 1] - first
    found = 0
    while found < num_blocks:
        if _place_of(prefixes, worker, prefixes.ids[first + found]) == 0:
            break
        found += 1
    return found


@compiled
def find_depths(prefixes: Prefixes, request: int, depths: Ints) -> int:
    """The same of every worker, in one walk; returns the longest."""
    num_workers = len(depths)
    first = prefixes.offsets[request]
    num_blocks = prefixes.offsets[request + 1] - first
    num_left, depth = num_workers, 0
    for worker in range(num_workers):
        prefixes.walking[worker] = worker
        depths[worker] = 0
    while depth < num_blocks and num_left > 0:
        one = prefixes.ids[first + depth]
        depth += 1
        still = 0
        for k in range(num_left):
            worker = prefixes.walking[k]
            if _place_of(prefixes, worker, one) > 0:
                prefixes.walking[still] = worker
                still += 1
                depths[worker] = depth
        num_left = still
    longest = 0
    for worker in range(num_workers):
        longest = max(longest, depths[worker])
    return longest


@compiled
def hold(prefixes: Prefixes, worker: int, request: int, num_blocks: int) -> int:
    """Pin so many leading blocks, which are here; returns the chain."""
    first, last = prefixes.offsets[request], 0
    for k in range(num_blocks):
        last = _place_of(prefixes, worker, prefixes.ids[first + k])
        _pin(prefixes, worker, last - 1)
    return last


@compiled
def publish(prefixes: Prefixes, worker: int, request: int, last: int, begin: int, end: int) -> int:
    """Make blocks from `begin` to `end` known and pin them; `last` is the chain up to `begin`.

    Stops early where everything that the worker may keep is pinned.
    """
    first = prefixes.offsets[request]
    end = min(end, prefixes.offsets[request + 1] - first)
    for k in range(begin, end):
        one = prefixes.ids[first + k]
        known = _place_of(prefixes, worker, one)
        if known > 0:
            _pin(prefixes, worker, known - 1)
        else:
            known = _new_block(prefixes, worker, one, last)
            if known == 0:
                break
        last = known
    return last


@compiled
def let_go(prefixes: Prefixes, worker: int, last: int) -> None:
    """The request that holds this chain needs it no longer; its last block gets old first."""
    while last > 0:
        block = last - 1
        prefixes.blocks[block, USES] -= 1
        if prefixes.blocks[block, USES] == 0:
            _rest(prefixes, worker, block)
        last = prefixes.blocks[block, BEFORE]


@compiled
def evict(prefixes: Prefixes, worker: int, num_blocks: int) -> int:
    """Give up so many idle blocks, the least recently used first; how many there were."""
    own = prefixes.workers[worker]
    num_evicted = 0
    while num_evicted < num_blocks and own[OLDEST] > 0:
        block = own[OLDEST] - 1
        _wake(prefixes, worker, block)
        _unlist(prefixes, block)
        prefixes.blocks[block, OLDER] = own[FREE]
        own[FREE] = block + 1
        own[NUM_HELD] -= 1
        num_evicted += 1
    return num_evicted


@compiled
def forget(prefixes: Prefixes, worker: int) -> None:
    """It has lost its memory."""
    begin = prefixes.workers[worker, FIRST_PLACE]
    for block in range(begin, begin + prefixes.workers[worker, NUM_PLACES]):
        if prefixes.blocks[block, ID] != _NOBODY:
            _unlist(prefixes, block)
    _empty(prefixes, worker)


@compiled
def _empty(prefixes: Prefixes, worker: int) -> None:
    own = prefixes.workers[worker]
    own[FREE] = own[NUM_HELD] = own[NUM_IDLE] = own[OLDEST] = own[NEWEST] = 0
    for block in range(own[FIRST_PLACE] + own[NUM_PLACES] - 1, own[FIRST_PLACE] - 1, -1):
        prefixes.blocks[block, ID] = _NOBODY
        prefixes.blocks[block, OWNER] = worker
        prefixes.blocks[block, OLDER] = own[FREE]
        own[FREE] = block + 1


@compiled
def _new_block(prefixes: Prefixes, worker: int, one: int, last: int) -> int:
    own = prefixes.workers[worker]
    if own[FREE] == 0 and evict(prefixes, worker, 1) == 0:
        return 0
    block = own[FREE] - 1
    own[FREE] = prefixes.blocks[block, OLDER]
    own[NUM_HELD] += 1
    prefixes.blocks[block, ID] = one
    prefixes.blocks[block, USES] = 1
    prefixes.blocks[block, BEFORE] = last
    prefixes.table[_seat(prefixes, worker, one)] = block + 1
    return int(block + 1)


@compiled
def _home(prefixes: Prefixes, worker: int, one: int) -> int:
    key = one * len(prefixes.workers) + worker
    mixed = ((key & _LOW_BITS) * _FACTOR >> _SHIFT) ^ (key >> 31)
    return int(mixed & (len(prefixes.table) - 1))


@compiled
def _seat(prefixes: Prefixes, worker: int, one: int) -> int:
    """Where an id of a worker stands in the table, or would."""
    seat, mask = _home(prefixes, worker, one), len(prefixes.table) - 1
    while prefixes.table[seat] > 0:
        block = prefixes.table[seat] - 1
        if prefixes.blocks[block, ID] == one and prefixes.blocks[block, OWNER] == worker:
            break
        seat = (seat + 1) & mask
    return seat


@compiled
def _place_of(prefixes: Prefixes, worker: int, one: int) -> int:
    return int(prefixes.table[_seat(prefixes, worker, one)])


@compiled
def _unlist(prefixes: Prefixes, block: int) -> None:
    """Out of the table; those behind it move up, so that each is found from its home on."""
    blocks, table, mask = prefixes.blocks, prefixes.table, len(prefixes.table) - 1
    hole = _seat(prefixes, blocks[block, OWNER], blocks[block, ID])
    blocks[block, ID] = _NOBODY
    seat = (hole + 1) & mask
    while table[seat] > 0:
        other = table[seat] - 1
        home = _home(prefixes, blocks[other, OWNER], blocks[other, ID])
        if ((seat - home) & mask) >= ((seat - hole) & mask):
            table[hole] = table[seat]
            hole = seat
        seat = (seat + 1) & mask
    table[hole] = 0


@compiled
def _pin(prefixes: Prefixes, worker: int, block: int) -> None:
    if prefixes.blocks[block, USES] == 0:
        _wake(prefixes, worker, block)
    prefixes.blocks[block, USES] += 1


@compiled
def _rest(prefixes: Prefixes, worker: int, block: int) -> None:
    """To the newest end of the idle ones."""
    own = prefixes.workers[worker]
    newest = own[NEWEST]
    prefixes.blocks[block, OLDER], prefixes.blocks[block, NEWER] = newest, 0
    if newest > 0:
        prefixes.blocks[newest - 1, NEWER] = block + 1
    else:
        own[OLDEST] = block + 1
    own[NEWEST] = block + 1
    own[NUM_IDLE] += 1


@compiled
def _wake(prefixes: Prefixes, worker: int, block: int) -> None:
    own = prefixes.workers[worker]
    older, newer = prefixes.blocks[block, OLDER], prefixes.blocks[block, NEWER]
    if older > 0:
        prefixes.blocks[older - 1, NEWER] = newer
    else:
        own[OLDEST] = newer
    if newer > 0:
        prefixes.blocks[newer - 1, OLDER] = older
    else:
        own[NEWEST] = older
    own[NUM_IDLE] -= 1
