"""Lists through the rows of requests: prompts of a worker, decodes of a lane, the router's queue.

Each request stands in one of them at a time. `owners[row, head]` and the next column are the ends.
"""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.state import Ints


@compiled
def push_back(requests: Ints, owner: Ints, head: int, request: int) -> None:
    """To the end of a list."""
    last = owner[head + 1]
    requests[request, c.R_NEXT] = 0
    requests[request, c.R_PREVIOUS] = last
    if last > 0:
        requests[last - 1, c.R_NEXT] = request + 1
    else:
        owner[head] = request + 1
    owner[head + 1] = request + 1


@compiled
def push_front(requests: Ints, owner: Ints, head: int, request: int) -> None:
    """To the front of a list."""
    first = owner[head]
    requests[request, c.R_PREVIOUS] = 0
    requests[request, c.R_NEXT] = first
    if first > 0:
        requests[first - 1, c.R_PREVIOUS] = request + 1
    else:
        owner[head + 1] = request + 1
    owner[head] = request + 1


@compiled
def unlink(requests: Ints, owner: Ints, head: int, request: int) -> None:
    """Out of the list that it stands in."""
    following, previous = requests[request, c.R_NEXT], requests[request, c.R_PREVIOUS]
    if previous > 0:
        requests[previous - 1, c.R_NEXT] = following
    else:
        owner[head] = following
    if following > 0:
        requests[following - 1, c.R_PREVIOUS] = previous
    else:
        owner[head + 1] = previous
