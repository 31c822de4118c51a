"""Max-min fair rates by progressive filling, over the links that a change can reach.

The link with the least capacity left for each of its flows is full first: its flows get that much
and are fixed. A flow whose prompt is still being computed, and that has sent all there is, takes no
more than what is released: it is fixed first, and leaves more to the others.
"""

import math

from baton.compiled import compiled
from baton.sim.fast.network_state import (
    AT_US,
    BACKLOG,
    CAPACITY,
    CHANGED_GROUP,
    CLOCK,
    FIRST,
    FOUND_GROUP,
    FOUND_LINK,
    GROUP_RATE,
    GROUP_US,
    HEAD,
    IS_CHANGED,
    LEFT,
    LINK_STAMP,
    NEXT,
    NOW_STAMP,
    NUM_CHANGED,
    NUM_PLAIN,
    NUM_RELEASING,
    ON_LINK,
    PHASE,
    PHASE_US,
    RATE,
    RESTING,
    ROOT,
    SLOPE,
    STAMP,
    WEIGHT,
    Network,
    link_of,
    set_flow_due,
    set_group_due,
)

_UNFIXED = -1.0


@compiled
def bring_forward(net: Network, group: int, now_us: float) -> None:
    """What its flows have sent by now, at the rates that they had."""
    passed_us = now_us - net.groups[group, GROUP_US]
    net.groups[group, GROUP_US] = now_us
    if passed_us > 0.0:
        net.groups[group, CLOCK] += net.groups[group, GROUP_RATE] * passed_us
    flow = net.group_ints[group, FIRST]
    while flow > 0:
        one = net.flows[flow - 1]
        flow_us = now_us - one[AT_US]
        if flow_us > 0.0:
            one[BACKLOG] = max(0.0, one[BACKLOG] + (one[SLOPE] - one[RATE]) * flow_us)
        one[AT_US] = now_us
        flow = net.flow_ints[flow - 1, NEXT]


@compiled
def refill(net: Network, now_us: float) -> None:
    """New rates for all that share links with a changed group, directly or through others."""
    num_links, num_groups = _gather(net)
    for i in range(num_groups):
        group = net.group_ints[i, FOUND_GROUP]
        bring_forward(net, group, now_us)
        _unfix(net, group)
    link = _fullest(net, num_links)
    while link >= 0:
        share = net.links[link, LEFT] / net.link_ints[link, WEIGHT]
        if not _fix_capped(net, num_groups, share):
            _fix_link(net, link, share)
        link = _fullest(net, num_links)
    for i in range(num_groups):
        _plan(net, net.group_ints[i, FOUND_GROUP], now_us)


@compiled
def _add_links(net: Network, group: int, num_links: int) -> int:
    stamp = net.counts[NOW_STAMP]
    for which in range(3):
        link = link_of(net, group, which)
        if link >= 0 and net.link_ints[link, LINK_STAMP] != stamp:
            net.link_ints[link, LINK_STAMP] = stamp
            net.link_ints[link, WEIGHT] = 0
            net.links[link, LEFT] = net.links[link, CAPACITY]
            net.link_ints[num_links, FOUND_LINK] = link
            num_links += 1
    return num_links


@compiled
def _column_on(net: Network, link: int) -> int:
    """Where groups keep their place in the list of a link: by what `link_of` was asked for."""
    num_nodes = (len(net.links) - 1) // 3
    if link < 2 * num_nodes:
        return ON_LINK
    return ON_LINK + 2 if link < 3 * num_nodes else ON_LINK + 4


@compiled
def _gather(net: Network) -> tuple[int, int]:
    net.counts[NOW_STAMP] += 1
    stamp = net.counts[NOW_STAMP]
    num_links = num_groups = looked_at = 0
    for i in range(net.counts[NUM_CHANGED]):
        group = net.group_ints[i, CHANGED_GROUP]
        net.group_ints[group, IS_CHANGED] = 0
        num_links = _add_links(net, group, num_links)
    net.counts[NUM_CHANGED] = 0
    while looked_at < num_links:
        link = net.link_ints[looked_at, FOUND_LINK]
        looked_at += 1
        column = _column_on(net, link)
        other = net.link_ints[link, HEAD]
        while other > 0:
            if net.group_ints[other - 1, STAMP] != stamp:
                net.group_ints[other - 1, STAMP] = stamp
                net.group_ints[num_groups, FOUND_GROUP] = other - 1
                num_groups += 1
                num_links = _add_links(net, other - 1, num_links)
            other = net.group_ints[other - 1, column]
    return num_links, num_groups


@compiled
def _unfix(net: Network, group: int) -> None:
    num_plain = net.group_ints[group, NUM_PLAIN]
    net.groups[group, GROUP_RATE] = _UNFIXED if num_plain > 0 else 0.0
    flow = net.group_ints[group, FIRST]
    while flow > 0:
        net.flows[flow - 1, RATE] = _UNFIXED
        flow = net.flow_ints[flow - 1, NEXT]
    for which in range(3):
        link = link_of(net, group, which)
        if link >= 0:
            net.link_ints[link, WEIGHT] += num_plain + net.group_ints[group, NUM_RELEASING]


@compiled
def _fullest(net: Network, num_links: int) -> int:
    """The link with the least left for each flow that is not fixed; -1 when all are."""
    fullest, least = -1, math.inf
    for i in range(num_links):
        link = net.link_ints[i, FOUND_LINK]
        weight = net.link_ints[link, WEIGHT]
        if weight > 0 and net.links[link, LEFT] / weight < least:
            fullest, least = link, net.links[link, LEFT] / weight
    return fullest


@compiled
def _take(net: Network, group: int, num_flows: int, rate: float) -> None:
    for which in range(3):
        link = link_of(net, group, which)
        if link >= 0:
            net.link_ints[link, WEIGHT] -= num_flows
            net.links[link, LEFT] = max(0.0, net.links[link, LEFT] - rate * num_flows)


@compiled
def _fix_capped(net: Network, num_groups: int, share: float) -> bool:
    """Flows that take no more than a share of the fullest link, since no more is released."""
    found = False
    for i in range(num_groups):
        group = net.group_ints[i, FOUND_GROUP]
        flow = net.group_ints[group, FIRST]
        while flow > 0:
            one = net.flows[flow - 1]
            if one[RATE] == _UNFIXED and one[BACKLOG] <= 0.0 and one[SLOPE] <= share:
                one[RATE] = one[SLOPE]
                _take(net, group, 1, one[SLOPE])
                found = True
            flow = net.flow_ints[flow - 1, NEXT]
    return found


@compiled
def _fix_link(net: Network, link: int, share: float) -> None:
    column = _column_on(net, link)
    other = net.link_ints[link, HEAD]
    while other > 0:
        group, num_flows = other - 1, 0
        if net.groups[group, GROUP_RATE] == _UNFIXED:
            net.groups[group, GROUP_RATE] = share
            num_flows = net.group_ints[group, NUM_PLAIN]
        flow = net.group_ints[group, FIRST]
        while flow > 0:
            if net.flows[flow - 1, RATE] == _UNFIXED:
                net.flows[flow - 1, RATE] = share
                num_flows += 1
            flow = net.flow_ints[flow - 1, NEXT]
        _take(net, group, num_flows, share)
        other = net.group_ints[group, column]


@compiled
def plan_flow(net: Network, flow: int, now_us: float) -> None:
    """When something changes for a flow by itself: its phase ends, or all that is there is sent."""
    one = net.flows[flow]
    due_us = one[PHASE_US] if net.flow_ints[flow, PHASE] != RESTING else math.inf
    if one[BACKLOG] > 0.0 and one[RATE] > one[SLOPE]:
        due_us = min(due_us, now_us + one[BACKLOG] / (one[RATE] - one[SLOPE]))
    set_flow_due(net, flow, due_us)


@compiled
def _plan(net: Network, group: int, now_us: float) -> None:
    due_us, root = math.inf, net.group_ints[group, ROOT]
    if root > 0:
        unsent = max(0.0, net.flows[root - 1, BACKLOG] - net.groups[group, CLOCK])
        due_us = now_us + unsent / net.groups[group, GROUP_RATE]
    set_group_due(net, group, due_us)
    flow = net.group_ints[group, FIRST]
    while flow > 0:
        plan_flow(net, flow - 1, now_us)
        flow = net.flow_ints[flow - 1, NEXT]
