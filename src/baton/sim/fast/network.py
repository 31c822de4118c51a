"""Transfers over shared links: max-min fair at every moment, no faster than layers are computed.

How a loop uses it. Workers are numbered over all groups.

    net = make_network(topology, num_workers, max_flows)
    flow = start_flow(net, now_us, request, prefill_worker, decode_worker, nbytes)
    release_layers(net, flow, now_us, step_start_us, step_end_us, num_layers, chunk_nbytes)
    release(net, flow, now_us, chunk_nbytes)
    net_us = next_us(net, now_us)         # with the loop's own next event: the earlier one is next
    for i in range(advance(net, net_us)):
        request = net.finished[i]         # its last byte was sent at net_us: add latency_us

Time never runs backwards. After changes ask `next_us` with their moment before going on: new rates
hold from there. Never go past what it said without `advance`. What happens inside (a chunk ends, a
rate changes) is an event too, with nothing finished.

A flow ends when the `nbytes` that it was started with are released and sent. LAYER: start it when
the decode worker has reserved its blocks, `release` what earlier steps have computed (prefixes that
were cached too), and call `release_layers` at the start of each step, or later inside a step, for
what that step computes. Other schedules: `release` everything when the prompt ends. A step's start
and end are those of the compute that produces the bytes, so that layer l is ready at
start + (l + 1) / L of it. A flow between two workers on one node takes the node's inner link; a
request that stays on its worker needs no flow.

The release of a chunk is the line below its steps: nothing before its first layer is ready, then
linearly up to all but the last layer when the last layer is ready, and then that one at once. On a
link of constant rate the end is exactly that of v_l = max(r_l, v_{l-1}) + x_l, since what bounds it
is the backlog just before each layer, and there line and steps agree.
"""

import math

from baton.compiled import compiled
from baton.sim.fast.network_shares import bring_forward, plan_flow, refill
from baton.sim.fast.network_state import (
    AT_US,
    AWAITING_LAYER,
    BACKLOG,
    CHILD,
    CLOCK,
    DUE_US,
    END_US,
    FIRST,
    FREE,
    GROUP,
    GROUP_DUE_US,
    IDLE,
    LAST,
    NEXT,
    NEXT_FREE,
    NUM_CHANGED,
    NUM_FLOWS,
    NUM_PLAIN,
    NUM_RELEASING,
    OWNER,
    PHASE,
    PHASE_US,
    PLAIN,
    PREVIOUS,
    RATE,
    RELEASING,
    RESTING,
    ROOT,
    SIBLING,
    SLOPE,
    SLOPED,
    SLOPING,
    STATE,
    TO_COME,
    Network,
    make_network,
    merge,
    pop,
    set_flow_due,
    set_group_due,
    stand_on_links,
)

__all__ = [
    "Network",
    "advance",
    "cancel_flow",
    "make_network",
    "next_us",
    "release",
    "release_layers",
    "start_flow",
]

_NOTHING = 0.5
"""Less than a byte."""
_NOBODY = -1
"""Owner of a flow that was cancelled and still stands in its group's heap."""


@compiled
def start_flow(
    net: Network, now_us: float, owner: int, source: int, destination: int, nbytes: float
) -> int:
    """A flow from worker to worker; `owner` names it when it is finished. Nothing is released."""
    flow = net.counts[NEXT_FREE] - 1
    if flow >= 0:
        net.counts[NEXT_FREE] = net.flow_ints[flow, SIBLING]
    else:
        flow = net.counts[NUM_FLOWS]
        net.counts[NUM_FLOWS] += 1
    num_nodes = (len(net.links) - 1) // 3
    net.flows[flow, :] = 0.0
    net.flow_ints[flow, :] = 0
    net.flows[flow, TO_COME] = nbytes
    net.flows[flow, AT_US] = now_us
    net.flow_ints[flow, OWNER] = owner
    net.flow_ints[flow, STATE] = IDLE
    net.flow_ints[flow, GROUP] = (
        net.worker_nodes[source] * num_nodes + net.worker_nodes[destination]
    )
    _reconsider(net, flow, now_us)
    return int(flow)


@compiled
def release(net: Network, flow: int, now_us: float, nbytes: float) -> None:
    """So many bytes are ready now."""
    if net.flow_ints[flow, STATE] == PLAIN:
        return  # everything is: what is more can only be a rounding of the caller's
    _settle(net, flow, now_us)
    net.flows[flow, TO_COME] -= nbytes
    net.flows[flow, BACKLOG] += nbytes
    _reconsider(net, flow, now_us)


@compiled
def release_layers(
    net: Network,
    flow: int,
    now_us: float,
    start_us: float,
    end_us: float,
    num_layers: int,
    nbytes: float,
) -> None:
    """So many bytes get ready layer by layer, by a step that has begun.

    Where an earlier step of this flow is still under way (pipelines), what is left of it is ready
    when this one is.
    """
    if net.flow_ints[flow, STATE] == PLAIN:
        return
    _settle(net, flow, now_us)
    one = net.flows[flow]
    one[TO_COME] -= nbytes
    first_us = start_us + (end_us - start_us) / num_layers
    sloped, last = nbytes - nbytes / num_layers, nbytes / num_layers
    if net.flow_ints[flow, PHASE] != RESTING:
        sloped += _unreleased(net, flow, now_us)
        first_us = now_us
    elif now_us > first_us and end_us > first_us:
        ready = sloped * min(1.0, (now_us - first_us) / (end_us - first_us))
        one[BACKLOG] += ready
        sloped, first_us = sloped - ready, now_us
    one[SLOPED], one[LAST], one[END_US] = sloped, last, end_us
    one[PHASE_US] = first_us
    net.flow_ints[flow, PHASE] = AWAITING_LAYER
    _pass_phases(net, flow, now_us)
    _reconsider(net, flow, now_us)


@compiled
def cancel_flow(net: Network, flow: int, now_us: float) -> None:
    """It ends without being finished: a worker died, or its request is gone."""
    _settle(net, flow, now_us)
    group = net.flow_ints[flow, GROUP]
    if net.flow_ints[flow, STATE] == PLAIN:
        net.flow_ints[flow, OWNER] = _NOBODY
        net.group_ints[group, NUM_PLAIN] -= 1
    else:
        set_flow_due(net, flow, math.inf)
        if net.flow_ints[flow, STATE] == RELEASING:
            _leave_list(net, flow)
        _free(net, flow)
    _drop_cancelled(net, group)
    stand_on_links(net, group)


@compiled
def next_us(net: Network, now_us: float) -> float:
    """When something happens next if nothing else is started or released; infinite if nothing.

    What has changed until now takes effect here: rates are found again.
    """
    if net.counts[NUM_CHANGED] > 0:
        refill(net, now_us)
    due_us = math.inf
    if net.group_heap[0] > 0:
        due_us = net.groups[net.group_heap[1], GROUP_DUE_US]
    if net.flow_heap[0] > 0:
        due_us = min(due_us, net.flows[net.flow_heap[1], DUE_US])
    return float(due_us)


@compiled
def advance(net: Network, now_us: float) -> int:
    """Let happen what is due now; how many owners stand in `finished`."""
    num_finished = 0
    while net.group_heap[0] > 0 and net.groups[net.group_heap[1], GROUP_DUE_US] <= now_us:
        num_finished = _finish(net, net.group_heap[1], now_us, num_finished)
    while net.flow_heap[0] > 0 and net.flows[net.flow_heap[1], DUE_US] <= now_us:
        _happen(net, net.flow_heap[1], now_us)
    return num_finished


@compiled
def _happen(net: Network, flow: int, now_us: float) -> None:
    """Of a flow by itself: a phase of its chunk ends, or it has sent all that is there."""
    is_phase = net.flow_ints[flow, PHASE] != RESTING and net.flows[flow, PHASE_US] <= now_us
    _settle(net, flow, now_us)
    if not is_phase:
        net.flows[flow, BACKLOG] = 0.0
    _reconsider(net, flow, now_us)


@compiled
def _settle(net: Network, flow: int, now_us: float) -> None:
    """What it has sent by now, and the phases that have ended."""
    bring_forward(net, net.flow_ints[flow, GROUP], now_us)
    net.flows[flow, AT_US] = now_us
    if net.flow_ints[flow, STATE] != PLAIN:
        _pass_phases(net, flow, now_us)


@compiled
def _pass_phases(net: Network, flow: int, now_us: float) -> None:
    one = net.flows[flow]
    if net.flow_ints[flow, PHASE] == AWAITING_LAYER and one[PHASE_US] <= now_us:
        net.flow_ints[flow, PHASE] = SLOPING
        if one[END_US] > now_us:
            one[SLOPE] = one[SLOPED] / (one[END_US] - now_us)
        else:
            one[BACKLOG] += one[SLOPED]
        one[PHASE_US] = one[END_US]
    if net.flow_ints[flow, PHASE] == SLOPING and one[END_US] <= now_us:
        net.flow_ints[flow, PHASE] = RESTING
        one[BACKLOG] += one[LAST]
        one[SLOPE] = 0.0


@compiled
def _unreleased(net: Network, flow: int, now_us: float) -> float:
    """Of a chunk that is under way; it is stopped here, for another one to take it over."""
    one = net.flows[flow]
    if net.flow_ints[flow, PHASE] == AWAITING_LAYER:
        return float(one[SLOPED] + one[LAST])
    left = one[SLOPE] * (one[END_US] - now_us) + one[LAST]
    one[SLOPE] = 0.0
    return float(left)


@compiled
def _reconsider(net: Network, flow: int, now_us: float) -> None:
    """Where it stands now, and what that changes for others."""
    one, group = net.flows[flow], net.flow_ints[flow, GROUP]
    before, after = net.flow_ints[flow, STATE], IDLE
    if net.flow_ints[flow, PHASE] == RESTING and one[TO_COME] < _NOTHING:
        after = PLAIN
    elif one[BACKLOG] > 0.0 or one[SLOPE] > 0.0:
        after = RELEASING
    net.flow_ints[flow, STATE] = after
    if before == RELEASING and after != RELEASING:
        _leave_list(net, flow)
    if after == RELEASING and before != RELEASING:
        _join_list(net, flow)
    if after == PLAIN:
        _join_heap(net, flow)
    if before != IDLE or after != IDLE:
        stand_on_links(net, group)
    if after != PLAIN:
        plan_flow(net, flow, now_us)


@compiled
def _join_heap(net: Network, flow: int) -> None:
    group = net.flow_ints[flow, GROUP]
    if net.group_ints[group, ROOT] == 0:
        net.groups[group, CLOCK] = 0.0
    set_flow_due(net, flow, math.inf)
    net.flows[flow, BACKLOG] += net.groups[group, CLOCK]
    net.flow_ints[flow, CHILD] = net.flow_ints[flow, SIBLING] = 0
    net.group_ints[group, ROOT] = merge(net, net.group_ints[group, ROOT], flow + 1)
    net.group_ints[group, NUM_PLAIN] += 1


@compiled
def _join_list(net: Network, flow: int) -> None:
    group = net.flow_ints[flow, GROUP]
    first = net.group_ints[group, FIRST]
    net.flow_ints[flow, NEXT], net.flow_ints[flow, PREVIOUS] = first, 0
    if first > 0:
        net.flow_ints[first - 1, PREVIOUS] = flow + 1
    net.group_ints[group, FIRST] = flow + 1
    net.group_ints[group, NUM_RELEASING] += 1


@compiled
def _leave_list(net: Network, flow: int) -> None:
    group = net.flow_ints[flow, GROUP]
    after, before = net.flow_ints[flow, NEXT], net.flow_ints[flow, PREVIOUS]
    if before > 0:
        net.flow_ints[before - 1, NEXT] = after
    else:
        net.group_ints[group, FIRST] = after
    if after > 0:
        net.flow_ints[after - 1, PREVIOUS] = before
    net.group_ints[group, NUM_RELEASING] -= 1
    net.flows[flow, RATE] = 0.0


@compiled
def _finish(net: Network, group: int, now_us: float, num_finished: int) -> int:
    """The flows of a group whose clock this is: their last byte is sent."""
    bring_forward(net, group, now_us)
    set_group_due(net, group, math.inf)
    root = net.group_ints[group, ROOT]
    net.groups[group, CLOCK] = max(net.groups[group, CLOCK], net.flows[root - 1, BACKLOG])
    while root > 0 and net.flows[root - 1, BACKLOG] <= net.groups[group, CLOCK]:
        net.group_ints[group, ROOT] = pop(net, root)
        if net.flow_ints[root - 1, OWNER] != _NOBODY:
            net.finished[num_finished] = net.flow_ints[root - 1, OWNER]
            num_finished += 1
            net.group_ints[group, NUM_PLAIN] -= 1
        _free(net, root - 1)
        root = net.group_ints[group, ROOT]
    _drop_cancelled(net, group)
    stand_on_links(net, group)
    return num_finished


@compiled
def _drop_cancelled(net: Network, group: int) -> None:
    root = net.group_ints[group, ROOT]
    while root > 0 and net.flow_ints[root - 1, OWNER] == _NOBODY:
        net.group_ints[group, ROOT] = pop(net, root)
        _free(net, root - 1)
        root = net.group_ints[group, ROOT]


@compiled
def _free(net: Network, flow: int) -> None:
    net.flow_ints[flow, STATE] = FREE
    net.flow_ints[flow, SIBLING] = net.counts[NEXT_FREE]
    net.counts[NEXT_FREE] = flow + 1
