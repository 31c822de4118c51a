"""Flows over shared links: max-min shares, layers that are released while others are computed."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from baton.sim.fast.deployment import Topology
from baton.sim.fast.network import (
    Network,
    advance,
    cancel_flow,
    make_network,
    next_us,
    release,
    release_layers,
    start_flow,
)

EACH_ITS_OWN = 1e9


class Links:
    """A network with a clock, driven as a loop drives it."""

    def __init__(self, num_workers: int, topology: Topology) -> None:
        self.net: Network = make_network(topology, num_workers, 1024)
        self.now_us = 0.0
        self.ends: dict[int, float] = {}

    def run(self, until_us: float = np.inf) -> dict[int, float]:
        """When each owner's last byte is sent."""
        net = self.net
        while (due_us := next_us(net, self.now_us)) <= until_us and due_us < np.inf:
            self.now_us = due_us
            for i in range(advance(net, due_us)):
                self.ends[int(net.finished[i])] = due_us
        self.now_us = max(self.now_us, until_us)
        return self.ends

    def open(self, at_us: float, owner: int, path: tuple[int, int], nbytes: float) -> int:
        self.run(at_us)
        return start_flow(self.net, at_us, owner, *path, nbytes)

    def send(self, at_us: float, owner: int, path: tuple[int, int], nbytes: float) -> int:
        """Everything at once."""
        flow = self.open(at_us, owner, path, nbytes)
        release(self.net, flow, at_us, nbytes)
        return flow

    def step(self, flow: int, at_us: float, begin: float, end: float, layers: int, n: float):
        self.run(at_us)
        release_layers(self.net, flow, at_us, begin, end, layers, n)


def links(num_workers: int, rate: float = 1.0, **bounds: object) -> Links:
    each = {"egress_bytes_per_us": rate, "ingress_bytes_per_us": EACH_ITS_OWN, **bounds}
    return Links(num_workers, Topology(**each))


@pytest.mark.parametrize(("layer_us", "last_us"), [(10.0, 110.0), (30.0, 145.0)])
def test_layers_leave_as_the_recurrence_says(layer_us, last_us):
    """Ready at 25, 50, 75, 100: visible at 110 on a fast link, at 145 on a slow one."""
    net = links(2, rate=1.0)
    flow = net.open(0.0, 7, (0, 1), 4 * layer_us)
    net.step(flow, 0.0, 0.0, 100.0, 4, 4 * layer_us)
    assert net.run() == {7: pytest.approx(last_us, abs=1e-9)}


@pytest.mark.parametrize(("layer_us", "last_us"), [(10.0, 140.0), (30.0, 220.0)])
def test_a_whole_prompt_leaves_after_its_last_layer(layer_us, last_us):
    net = links(2, rate=1.0)
    net.send(100.0, 7, (0, 1), 4 * layer_us)
    assert net.run() == {7: pytest.approx(last_us, abs=1e-9)}


def recurrence(ready: list[float], sizes: list[float], rate: float) -> float:
    visible = 0.0
    for at, nbytes in zip(ready, sizes, strict=True):
        visible = max(at, visible) + nbytes / rate
    return visible


@pytest.mark.parametrize("seed", range(60))
def test_chunks_of_layers_on_a_link_of_their_own_end_as_the_recurrence_says(seed):
    random = Random(seed)
    num_layers, rate = random.choice([1, 2, 5, 32]), random.choice([0.5, 3.0, 40.0])
    at, ready, sizes, steps = random.uniform(0, 50), [], [], []
    for _ in range(random.randint(1, 6)):
        at += random.choice([0.0, random.uniform(0, 80)])
        took, nbytes = random.uniform(1, 100), float(random.randint(1, 900))
        steps.append((at, at + took, nbytes))
        ready += [at + (layer + 1) / num_layers * took for layer in range(num_layers)]
        sizes += [nbytes / num_layers] * num_layers
        at += took
    net = links(2, rate=rate)
    flow = net.open(0.0, 3, (0, 1), sum(nbytes for _, _, nbytes in steps))
    for begin, end, nbytes in steps:
        net.step(flow, begin, begin, end, num_layers, nbytes)
    assert net.run() == {3: pytest.approx(recurrence(ready, sizes, rate), rel=1e-12)}


def test_a_flow_that_starts_within_a_step_ends_as_its_backlog_says():
    """Half of the layers are ready when the decode worker has reserved its blocks."""
    net = links(2, rate=1.0)
    flow = net.open(60.0, 1, (0, 1), 120.0)
    net.step(flow, 60.0, 0.0, 100.0, 4, 120.0)
    assert net.run() == {1: pytest.approx(180.0)}


def test_a_step_that_begins_before_the_last_one_ended_delays_nothing_that_is_last():
    net = links(2, rate=1000.0)
    flow = net.open(0.0, 1, (0, 1), 400.0)
    net.step(flow, 0.0, 0.0, 100.0, 4, 200.0)
    net.step(flow, 50.0, 50.0, 150.0, 4, 200.0)
    assert net.run() == {1: pytest.approx(150.0 + 50.0 / 1000.0)}
    slow = links(2, rate=1.0)
    flow = slow.open(0.0, 1, (0, 1), 400.0)
    slow.step(flow, 0.0, 0.0, 100.0, 4, 200.0)
    slow.step(flow, 50.0, 50.0, 150.0, 4, 200.0)
    assert slow.run() == {1: pytest.approx(25.0 + 400.0)}


def test_flows_of_one_sender_share_its_link():
    net = links(3, rate=2.0)
    net.send(0.0, 1, (0, 1), 100.0)
    net.send(0.0, 2, (0, 2), 300.0)
    assert net.run() == {1: pytest.approx(100.0), 2: pytest.approx(200.0)}


def test_what_a_released_flow_cannot_use_is_left_to_others():
    """20 bytes ready in 20 us at most leave 9 of 10 bytes per us to a flow that has everything."""
    net = links(3, rate=10.0)
    slow = net.open(0.0, 1, (0, 1), 21.0)
    net.step(slow, 0.0, -1.0, 20.0, 21, 21.0)
    net.send(0.0, 2, (0, 2), 90.0)
    ends = net.run()
    assert ends[2] == pytest.approx(10.0)
    assert ends[1] == pytest.approx(20.1)


def test_a_flow_that_has_sent_all_there_is_takes_what_is_released_and_no_more():
    """400 bytes are ready at 500; at 5 a us, with 1 a us more, they are gone at 600. The other one
    then gets 9, from 1000 on again 5 beside the last layer's 100, and 10 at the end."""
    net = links(3, rate=10.0)
    late = net.open(500.0, 1, (0, 1), 1000.0)
    net.step(late, 500.0, 0.0, 1000.0, 10, 1000.0)
    net.send(500.0, 2, (0, 2), 5000.0)
    assert net.run() == {1: pytest.approx(1020.0), 2: pytest.approx(1100.0)}


def test_max_min_over_two_bottlenecks():
    """Sender 0 has a link of 1 for flows to 2 and 3; receiver 3 of 10 takes the rest of 1's."""
    net = Links(
        4, Topology(egress_bytes_per_us=8.0, ingress_bytes_per_us=6.0, fabric_bytes_per_us=9.0)
    )
    net.send(0.0, 1, (0, 2), 1e6)
    net.send(0.0, 2, (0, 3), 1e6)
    net.send(0.0, 3, (1, 3), 1e6)
    net.run(1.0)
    assert sorted(net.net.groups[[2, 3, 7], 1]) == pytest.approx([3.0, 3.0, 3.0])


def test_workers_of_one_node_use_its_inner_link_and_the_fabric_bounds_the_others():
    topology = Topology(
        worker_nodes=(0, 0, 1, 1, 2),
        inner_bytes_per_us=100.0,
        egress_bytes_per_us=10.0,
        ingress_bytes_per_us=10.0,
        fabric_bytes_per_us=4.0,
    )
    net = Links(5, topology)
    net.send(0.0, 1, (0, 1), 1000.0)
    net.send(0.0, 2, (0, 2), 40.0)
    net.send(0.0, 3, (3, 4), 40.0)
    assert net.run() == {k: pytest.approx(v) for k, v in {1: 10.0, 2: 20.0, 3: 20.0}.items()}


def test_nothing_to_send_is_done_at_once_and_a_cancelled_flow_never():
    net = links(2, rate=1.0)
    net.open(5.0, 1, (0, 1), 0.0)
    doomed = net.send(5.0, 2, (0, 1), 100.0)
    computing = net.open(5.0, 3, (0, 1), 40.0)
    net.step(computing, 5.0, 5.0, 25.0, 2, 40.0)
    net.send(5.0, 4, (0, 1), 100.0)
    net.run(10.0)
    cancel_flow(net.net, doomed, 10.0)
    cancel_flow(net.net, computing, 10.0)
    assert net.run() == {1: 5.0, 4: pytest.approx(10.0 + 97.5)}
    first = net.send(300.0, 5, (0, 1), 10.0)
    cancel_flow(net.net, first, 300.0)
    assert net.send(300.0, 6, (0, 1), 10.0) == first, "its place is used again at once"


def reference(flows: list[tuple[float, int, int, float]], capacity: Callable) -> dict[int, float]:
    """Max-min by the definition, one flow at a time, everything from the start at each event."""
    left = {k: nbytes for k, (*_, nbytes) in enumerate(flows)}
    now, ends = 0.0, {}
    while left:
        active = [k for k in left if flows[k][0] <= now]
        coming = [flows[k][0] for k in left if flows[k][0] > now]
        rates = shares([flows[k][1:3] for k in active], capacity)
        dues = [now + left[k] / rate for k, rate in zip(active, rates, strict=True)]
        until = min(dues + coming)
        for k, rate, due in zip(active, rates, dues, strict=True):
            left[k] -= rate * (until - now)
            if due <= until * (1 + 1e-13):
                ends[k] = until
                del left[k]
        now = until
    return ends


def shares(paths: list[tuple[int, int]], capacity: Callable) -> list[float]:
    links = [(("out", a), ("in", b)) for a, b in paths]
    left = {link: capacity(link) for path in links for link in path}
    rates: dict[int, float] = {}
    while len(rates) < len(paths):
        free = {
            link: left[link] / n
            for link in left
            if (n := sum(link in links[k] for k in range(len(paths)) if k not in rates))
        }
        full = min(free, key=free.__getitem__)
        for k in range(len(paths)):
            if k not in rates and full in links[k]:
                rates[k] = free[full]
                for link in links[k]:
                    left[link] -= rates[k]
    return [rates[k] for k in range(len(paths))]


@pytest.mark.parametrize("seed", range(25))
def test_random_flows_end_when_max_min_by_the_definition_says(seed):
    random = Random(seed)
    out, into = random.choice([(5.0, 7.0), (5.0, 100.0), (100.0, 3.0)])
    net = links(6, rate=out, ingress_bytes_per_us=into)
    flows = sorted(
        (random.uniform(0, 60), random.randrange(3), random.randrange(3, 6), random.uniform(1, 200))
        for _ in range(30)
    )
    for owner, (at, a, b, nbytes) in enumerate(flows):
        net.send(at, owner, (a, b), nbytes)
    expected = reference(flows, lambda link: out if link[0] == "out" else into)
    assert net.run() == {k: pytest.approx(v, rel=1e-9) for k, v in expected.items()}
    after = net.net
    assert not after.group_heap[0] and not after.flow_heap[0] and not after.link_ints[:, 0].any()
