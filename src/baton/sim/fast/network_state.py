"""Links, flows between workers and groups of flows with one path, as flat arrays.

Flows of one pair of nodes that have nothing more to be released are a group: they get equal rates,
so one virtual clock (bytes sent by each of them) and a heap of finishing clocks serve them all.
Flows whose prompt is still being computed are kept one by one, in a list of their group.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.compiled import compiled
from baton.sim.fast.deployment import Topology

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Columns of `flows`. Of a flow in its group's heap, BACKLOG is the virtual clock at its end.
BACKLOG, TO_COME, SLOPE, RATE, AT_US, PHASE_US, END_US, SLOPED, LAST, DUE_US = range(10)
"""Released and unsent bytes; bytes that no chunk has brought yet; rates of release and of sending
since AT_US; ends of the phase and of the chunk; bytes of the chunk before its last layer, and of
that one; when something changes for it, while it stands in the heap of flows."""
# Columns of `flow_ints`. Links are index + 1; 0 is none.
GROUP, STATE, PHASE, OWNER, CHILD, SIBLING, FLOW_POSITION = range(7)
NEXT, PREVIOUS = CHILD, SIBLING
"""A flow stands either in its group's heap or in its group's list."""
FREE, IDLE, RELEASING, PLAIN = range(4)
RESTING, AWAITING_LAYER, SLOPING = range(3)
# Columns of `groups` and `group_ints`.
CLOCK, GROUP_RATE, GROUP_US, GROUP_DUE_US = range(4)
NUM_PLAIN, NUM_RELEASING, ROOT, FIRST, STAMP, GROUP_POSITION, IS_ON_LINKS, IS_CHANGED = range(8)
FOUND_GROUP, CHANGED_GROUP = 8, 9
"""Not of the group of this row: lists of groups, for which there is room here."""
ON_LINK = 10
"""Three pairs of (next, previous) in the lists of the links of this group."""
# Columns of `links` and `link_ints`.
CAPACITY, LEFT = range(2)
HEAD, WEIGHT, LINK_STAMP, FOUND_LINK = range(4)
# Entries of `counts`.
NEXT_FREE, NUM_FLOWS, NOW_STAMP, NUM_CHANGED = range(4)

_UNBOUNDED = 1e30
"""Bytes per microsecond of a link without a bound: finite, so that shares can be subtracted."""


class Network(NamedTuple):
    """All state of the links; make one with `make_network`, change it by the functions alone."""

    worker_nodes: Ints
    links: Floats
    link_ints: Ints
    flows: Floats
    flow_ints: Ints
    groups: Floats
    group_ints: Ints
    flow_heap: Ints
    group_heap: Ints
    finished: Ints
    """What `advance` found: owners of flows that are done, in order."""
    counts: Ints


def make_network(topology: Topology, num_workers: int, max_flows: int) -> Network:
    """For at most so many flows at once (the number of requests is safe: pages that are not
    touched take no memory). Without `worker_nodes` every worker is a node."""
    nodes = np.array(topology.worker_nodes or range(num_workers), np.int64)
    num_nodes = int(nodes.max()) + 1
    num_links, num_groups = 3 * num_nodes + 1, num_nodes * num_nodes
    links = np.zeros((num_links, 2), np.float64)
    links[:num_nodes, CAPACITY] = topology.inner_bytes_per_us
    links[num_nodes : 2 * num_nodes, CAPACITY] = topology.egress_bytes_per_us
    links[2 * num_nodes : 3 * num_nodes, CAPACITY] = topology.ingress_bytes_per_us
    links[-1, CAPACITY] = topology.fabric_bytes_per_us
    np.minimum(links[:-1], _UNBOUNDED, out=links[:-1])
    return Network(
        worker_nodes=nodes,
        links=links,
        link_ints=np.zeros((num_links, 4), np.int64),
        flows=np.zeros((max_flows, 10), np.float64),
        flow_ints=np.zeros((max_flows, 7), np.int64),
        groups=np.zeros((num_groups, 4), np.float64),
        group_ints=np.zeros((num_groups, 16), np.int64),
        flow_heap=np.zeros(max_flows + 1, np.int64),
        group_heap=np.zeros(num_groups + 1, np.int64),
        finished=np.zeros(max_flows, np.int64),
        counts=np.zeros(4, np.int64),
    )


@compiled
def link_of(net: Network, group: int, which: int) -> int:
    """The links of a group's path, 0 to 2; -1 where there are fewer."""
    num_nodes = (len(net.links) - 1) // 3
    source, destination = group // num_nodes, group % num_nodes
    if source == destination:
        return source if which == 0 else -1
    if which == 0:
        return num_nodes + source
    if which == 1:
        return 2 * num_nodes + destination
    fabric = 3 * num_nodes
    return fabric if net.links[fabric, CAPACITY] < math.inf else -1


@compiled
def _sift(heap: Ints, start: int, table: Floats, due: int, ints: Ints, position: int) -> None:
    """Move an entry of the heap to where it belongs; entry 0 is the size, positions start at 1."""
    size, at, one = heap[0], start, heap[start]
    key = table[one, due]
    while at > 1:
        above = heap[at // 2]
        if table[above, due] < key or (table[above, due] == key and above < one):
            break
        heap[at] = above
        ints[above, position] = at
        at //= 2
    while 2 * at <= size:
        child = 2 * at
        below = heap[child]
        if child < size:
            other = heap[child + 1]
            first, second = table[below, due], table[other, due]
            if second < first or (second == first and other < below):
                child, below = child + 1, other
        if key < table[below, due] or (key == table[below, due] and one < below):
            break
        heap[at] = below
        ints[below, position] = at
        at = child
    heap[at] = one
    ints[one, position] = at


@compiled
def _put(
    heap: Ints, one: int, due_us: float, table: Floats, due: int, ints: Ints, position: int
) -> None:
    at = ints[one, position]
    table[one, due] = due_us
    if due_us < math.inf:
        if at == 0:
            heap[0] += 1
            at = heap[0]
            heap[at] = one
        _sift(heap, at, table, due, ints, position)
    elif at > 0:
        last = heap[heap[0]]
        heap[0] -= 1
        ints[one, position] = 0
        if last != one:
            heap[at] = last
            _sift(heap, at, table, due, ints, position)


@compiled
def set_flow_due(net: Network, flow: int, due_us: float) -> None:
    """Put it into the heap of flows, move it there, or with an infinite time take it out."""
    _put(net.flow_heap, flow, due_us, net.flows, DUE_US, net.flow_ints, FLOW_POSITION)


@compiled
def set_group_due(net: Network, group: int, due_us: float) -> None:
    """Likewise the heap of groups, by the first end of a flow of each."""
    _put(net.group_heap, group, due_us, net.groups, GROUP_DUE_US, net.group_ints, GROUP_POSITION)


@compiled
def note_change(net: Network, group: int) -> None:
    """Its rates, and those of all that share links with it, have to be found again."""
    if not net.group_ints[group, IS_CHANGED]:
        net.group_ints[group, IS_CHANGED] = 1
        net.group_ints[net.counts[NUM_CHANGED], CHANGED_GROUP] = group
        net.counts[NUM_CHANGED] += 1


@compiled
def merge(net: Network, a: int, b: int) -> int:
    """Two pairing heaps of flows (index + 1, 0 is empty) into one, by clock and then index."""
    if a == 0 or b == 0:
        return a + b
    first, second = net.flows[a - 1, BACKLOG], net.flows[b - 1, BACKLOG]
    if second < first or (second == first and b < a):
        a, b = b, a
    net.flow_ints[b - 1, SIBLING] = net.flow_ints[a - 1, CHILD]
    net.flow_ints[a - 1, CHILD] = b
    return a


@compiled
def pop(net: Network, root: int) -> int:
    """The heap without its root: children in pairs, then the pairs into one."""
    child, pairs = net.flow_ints[root - 1, CHILD], 0
    while child > 0:
        second = net.flow_ints[child - 1, SIBLING]
        rest = net.flow_ints[second - 1, SIBLING] if second > 0 else 0
        net.flow_ints[child - 1, SIBLING] = 0
        if second > 0:
            net.flow_ints[second - 1, SIBLING] = 0
        both = merge(net, child, second)
        net.flow_ints[both - 1, SIBLING] = pairs
        pairs, child = both, rest
    whole = 0
    while pairs > 0:
        rest = net.flow_ints[pairs - 1, SIBLING]
        net.flow_ints[pairs - 1, SIBLING] = 0
        whole = merge(net, whole, pairs)
        pairs = rest
    return whole


@compiled
def stand_on_links(net: Network, group: int) -> None:
    """A group stands in the lists of its links while it has flows."""
    num_flows = net.group_ints[group, NUM_PLAIN] + net.group_ints[group, NUM_RELEASING]
    if num_flows > 0 and not net.group_ints[group, IS_ON_LINKS]:
        net.group_ints[group, IS_ON_LINKS] = 1
        _join_links(net, group)
    elif num_flows == 0 and net.group_ints[group, IS_ON_LINKS]:
        net.group_ints[group, IS_ON_LINKS] = 0
        net.groups[group, GROUP_RATE] = 0.0
        set_group_due(net, group, math.inf)
        _leave_links(net, group)
    note_change(net, group)


@compiled
def _join_links(net: Network, group: int) -> None:
    for which in range(3):
        link = link_of(net, group, which)
        if link >= 0:
            first, column = net.link_ints[link, HEAD], ON_LINK + 2 * which
            net.group_ints[group, column] = first
            net.group_ints[group, column + 1] = 0
            if first > 0:
                net.group_ints[first - 1, column + 1] = group + 1
            net.link_ints[link, HEAD] = group + 1


@compiled
def _leave_links(net: Network, group: int) -> None:
    for which in range(3):
        link = link_of(net, group, which)
        if link >= 0:
            column = ON_LINK + 2 * which
            after, before = net.group_ints[group, column], net.group_ints[group, column + 1]
            if before > 0:
                net.group_ints[before - 1, column] = after
            else:
                net.link_ints[link, HEAD] = after
            if after > 0:
                net.group_ints[after - 1, column + 1] = before
