"""Splitwise's pools: machines serve the other phase while its own pool's queues are too long.

Both machines of a request are chosen together, by pending tokens; a borrowed machine keeps its
role, counts as mixed, and returns home when it has no work of the other phase left (0x08F, 0x08G).
"""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.accounts import is_open
from baton.sim.fast.kept import num_blocks_for
from baton.sim.fast.state import Ints, State


@compiled
def _has_room(s: State, worker: Ints, request: int) -> bool:
    if worker[c.W_IS_FULL] > 0 or worker[c.W_ACTIVE] >= worker[c.W_MAX_ADMITTED]:
        return False
    num_tokens = s.requests[request, c.R_PROMPT] + s.requests[request, c.R_PRODUCED] + 1
    needed = num_blocks_for(worker, num_tokens)
    return bool(worker[c.W_NUM_BLOCKS] - worker[c.W_ACCOUNT] >= needed)


@compiled
def _shortest(s: State, request: int, role: int, is_mixed: int, decodes: bool) -> int:
    """Of one pool the machine with the fewest tokens of a phase, and room for a decode; or -1."""
    best, column = -1, c.W_TOKENS if decodes else c.W_PENDING
    for number in range(s.workers.shape[0]):
        worker = s.workers[number]
        if not is_open(worker) or worker[c.W_IS_MIXED] != is_mixed:
            continue
        if is_mixed == 0 and worker[c.W_ROLE] != role:
            continue
        if decodes and not _has_room(s, worker, request):
            continue
        if best < 0 or worker[column] < s.workers[best, column]:
            best = number
    return best


@compiled
def spill_route(s: State, request: int) -> tuple[int, int]:
    """Prompt machine and token machine; -1 and -1 while no machine has room for its tokens."""
    threshold = s.counts[c.C_SPILL]
    target = _shortest(s, request, c.DECODE, 0, True)
    if target < 0:
        target = _shortest(s, request, c.MIXED, 1, True)
    if target < 0:
        target = _borrow(s, _shortest(s, request, c.PREFILL, 0, True))
    if target < 0:
        return -1, -1
    source = _shortest(s, request, c.PREFILL, 0, False)
    if source < 0 or s.workers[source, c.W_PENDING] > threshold:
        mixed = _shortest(s, request, c.MIXED, 1, False)
        if mixed < 0 or s.workers[mixed, c.W_PENDING] > threshold:
            mixed = _borrow(s, _shortest(s, request, c.DECODE, 0, False))
        if mixed >= 0:
            source = mixed
    if source < 0:
        source = target
    return source, target


@compiled
def _borrow(s: State, number: int) -> int:
    if number >= 0:
        s.workers[number, c.W_IS_MIXED] = 1
        s.counts[c.C_BORROWED] += 1
    return number
