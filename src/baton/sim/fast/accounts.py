"""The router's accounts of workers: rows that wait there, requests and blocks that decode there."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.kept import num_blocks_for
from baton.sim.fast.state import Ints, State


@compiled
def is_open(worker: Ints) -> bool:
    """New requests may be routed to it."""
    return bool(worker[c.W_IS_UP] > 0 and worker[c.W_IS_CLOSED] == 0)


@compiled
def return_home(s: State, number: int) -> None:
    """A borrowed machine without work of the other phase is its own pool's again (0x08G)."""
    worker = s.workers[number]
    if worker[c.W_IS_MIXED] == 0:
        return
    is_prefill = worker[c.W_ROLE] == c.PREFILL
    if (worker[c.W_ACTIVE] if is_prefill else worker[c.W_PENDING]) == 0:
        worker[c.W_IS_MIXED] = 0
        s.counts[c.C_RETURNED] += 1


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
def enter(s: State, request: int, source: int, target: int, reused: int) -> None:
    """An attempt with this pair begins; so many of its rows are expected to be there."""
    one = s.requests[request]
    num_tokens = one[c.R_PROMPT] + one[c.R_PRODUCED]
    rows = num_tokens - reused
    one[c.R_PREFILL], one[c.R_DECODE] = source, target
    one[c.R_PENDING], one[c.R_TOKENS] = rows, num_tokens
    one[c.R_PAIRS] = rows * reused + rows * (rows + 1) // 2
    one[c.R_ACCOUNT] = num_blocks_for(s.workers[target], num_tokens + 1)
    s.workers[source, c.W_PENDING] += one[c.R_PENDING]
    s.workers[source, c.W_PAIRS] += one[c.R_PAIRS]
    worker = s.workers[target]
    worker[c.W_ACCOUNT] += one[c.R_ACCOUNT]
    worker[c.W_TOKENS] += one[c.R_TOKENS]
    worker[c.W_ACTIVE] += 1


@compiled
def forget_prefill(s: State, request: int) -> None:
    """The router knows that its prompt is computed, or will not be."""
    one = s.requests[request]
    if one[c.R_PENDING] > 0:
        s.workers[one[c.R_PREFILL], c.W_PENDING] -= one[c.R_PENDING]
        s.workers[one[c.R_PREFILL], c.W_PAIRS] -= one[c.R_PAIRS]
        one[c.R_PENDING] = 0
        return_home(s, one[c.R_PREFILL])


@compiled
def forget(s: State, request: int) -> None:
    """Off every account."""
    forget_prefill(s, request)
    one = s.requests[request]
    if one[c.R_ACCOUNT] > 0:
        worker = s.workers[one[c.R_DECODE]]
        worker[c.W_ACCOUNT] -= one[c.R_ACCOUNT]
        worker[c.W_TOKENS] -= one[c.R_TOKENS]
        worker[c.W_ACTIVE] -= 1
        worker[c.W_IS_FULL] = 0
        one[c.R_ACCOUNT] = 0
        return_home(s, one[c.R_DECODE])
