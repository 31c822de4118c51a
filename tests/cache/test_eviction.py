"""Eviction: never what is held, only leaves, each policy in its order, and the hit ratio of LRU."""

from collections import OrderedDict
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton.cache.eviction import POLICIES, CostAware, EvictionQueue
from baton.cache.history import History
from tests.cache.pools import pool_of, prompt, serve

NUM_SLOTS = 7


class HistoryWalk(RuleBasedStateMachine):
    """The model: names with parents, readers by name; whoever goes must be an idle leaf."""

    policy = "lru"

    def __init__(self) -> None:
        super().__init__()
        self.history = History(NUM_SLOTS, POLICIES[self.policy](), lambda name, depth: depth + 1.0)
        self.parents: dict[int, int | None] = {}
        self.held: set[int] = set()
        self.num_names = 0

    def children(self, slot: int) -> list[int]:
        return [child for child, parent in self.parents.items() if parent == slot]

    def is_busy(self, slot: int) -> bool:
        return slot in self.held or any(map(self.is_busy, self.children(slot)))

    @precondition(lambda self: len(self.parents) < NUM_SLOTS)
    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        slot = min(set(range(NUM_SLOTS)) - set(self.parents))
        above = data.draw(st.sampled_from([None, *self.parents]))
        depth = 0 if above is None else self.history.depth(above) + 1
        parent = None if above is None else self.history.names[above]
        self.num_names += 1
        self.history.insert(slot, self.num_names.to_bytes(2, "big"), parent, depth)
        self.parents[slot] = above
        self.held.add(slot)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.held)))
        self.history.touch(slot)
        self.history.let_go(slot)
        self.held.remove(slot)

    @precondition(lambda self: set(self.parents) - self.held)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(set(self.parents) - self.held)))
        self.history.hold(slot)
        self.history.use(slot)
        self.held.add(slot)

    @precondition(lambda self: self.parents)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.parents)))
        self.history.forget(slot)
        for child in self.children(slot):
            self.parents[child] = None
        del self.parents[slot]
        self.held.discard(slot)

    @rule()
    def pop(self) -> None:
        next_slot = self.history.peek()
        given_up = self.history.pop()
        leaves = {s for s in self.parents if s not in self.held and not self.children(s)}
        if not leaves:
            assert given_up is None and next_slot is None
            return
        assert given_up is not None and given_up[0] == next_slot
        assert given_up[0] in leaves
        del self.parents[given_up[0]]

    @invariant()
    def what_is_counted_is_there(self) -> None:
        self.history.check()
        assert len(self.history) == len(self.parents)
        assert self.history.num_idle == len(self.parents) - len(self.held)
        assert self.history.num_reclaimable == sum(not self.is_busy(s) for s in self.parents)


class _FrequencyWalk(HistoryWalk):
    policy = "lfu"


class _CostWalk(HistoryWalk):
    policy = "cost_aware"


for walk in (HistoryWalk, _FrequencyWalk, _CostWalk):
    walk.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestHistoryWalk = HistoryWalk.TestCase
TestFrequencyWalk = _FrequencyWalk.TestCase
TestCostWalk = _CostWalk.TestCase


def evicted(policy: str, num_uses: list[int], depths: list[int], price=None) -> list[int]:
    """Independent slots in the order in which they are given up; slot 0 was used longest ago."""
    history = History(len(depths), POLICIES[policy](), price)
    for slot, depth in enumerate(depths):
        history.insert(slot, bytes([slot]), None, depth)
        for _ in range(num_uses[slot] - 1):
            history.use(slot)
        history.touch(slot)
        history.let_go(slot)
    return [popped[0] for popped in iter(history.pop, None)]


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("lru", [0, 1, 2, 3]),
        ("lfu", [1, 3, 2, 0]),
        ("length_aware", [2, 1, 3, 0]),
        ("cost_aware", [3, 1, 0, 2]),
    ],
)
def test_each_policy_has_its_order(policy, order):
    price = {0: 10.0, 1: 20.0, 2: 40.0, 3: 5.0}
    found = evicted(policy, [3, 1, 2, 1], [0, 4, 9, 4], lambda name, depth: price[name[0]])
    assert found == order


def test_cost_aware_forgets_that_something_was_popular_once():
    policy = CostAware()
    old = policy.rank(0, 5, 2.0)
    for _ in range(3):
        policy.gave_up((9.0, 0.0))
    assert policy.rank(0, 1, 2.0) > old, "a newcomer stands above what nobody has used since"


def test_a_block_that_can_be_reloaded_is_given_up_before_one_that_must_be_computed():
    below = {1}
    found = evicted("cost_aware", [1, 1], [3, 3], lambda name, _: 2.0 if name[0] in below else 9.0)
    assert found == [1, 0]


def test_a_new_price_counts_at_once():
    price = {0: 5.0, 1: 7.0}
    history = History(2, POLICIES["cost_aware"](), lambda name, _: price[name[0]])
    for slot in (0, 1):
        history.insert(slot, bytes([slot]), None, 0)
        history.let_go(slot)
    price[1] = 1.0
    history.reprice(1)
    assert history.pop() == (1, b"\x01")


def test_the_queue_stays_small_however_often_a_block_is_used():
    queue = EvictionQueue(4)
    for number in range(10_000):
        queue.add(number % 4, (0.0, 0.0), number)
        queue.discard(number % 4)
    assert len(queue) == 0 and len(queue._heap) <= 64


def _brute_force_hits(trace: list[tuple[int, ...]], capacity: int) -> int:
    """LRU over prefixes, whole blocks, the end of a prompt older than its beginning."""
    cache: OrderedDict[tuple[int, ...], None] = OrderedDict()
    hits = 0
    for tokens in trace:
        chains = [tokens[: end + 1] for end in range(len(tokens))]
        found = 0
        while found < len(chains) and chains[found] in cache:
            found += 1
        hits += found
        for chain in chains[:found]:
            del cache[chain]  # in use now
        while len(cache) + len(chains) > capacity:
            cache.popitem(last=False)
        for chain in reversed(chains):
            cache[chain] = None
    return hits


@pytest.mark.parametrize("capacity", [12, 24, 48])
def test_hits_of_a_trace_are_those_of_a_brute_force_lru(capacity):
    random = Random(capacity)
    trace = []
    for _ in range(400):
        topic, length = random.choice([0, 0, 0, 1, 1, 2, 3, 4]), random.randrange(1, 9)
        trace.append(
            tuple(topic * 100 + (i if random.random() < 0.9 else 50) for i in range(length))
        )
    memory = pool_of(capacity)
    for tokens in trace:
        serve(memory, prompt([t for token in tokens for t in (token, token)]))
    assert memory.num_hits == _brute_force_hits(trace, capacity)
    assert memory.num_hits > 100
    memory.pool.check()


def test_cost_aware_keeps_deep_blocks_where_compute_is_quadratic():
    found = evicted("cost_aware", [1, 1, 1], [8, 1, 4], lambda _, depth: 1.0 + depth)
    assert found == [1, 2, 0]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_beginning_is_given_up_after_everything_that_continues_it(policy):
    history = History(4, POLICIES[policy](), lambda _, depth: 1.0 / (1 + depth))
    history.insert(0, b"0", None, 0)
    history.insert(1, b"1", b"0", 1)
    history.insert(2, b"2", b"0", 1)
    history.insert(3, b"3", b"2", 2)
    for slot in (0, 1, 2, 3):  # the beginning was used longest ago
        history.touch(slot)
        history.let_go(slot)
    order = [popped[0] for popped in iter(history.pop, None)]
    assert order[-1] == 0 and order.index(3) < order.index(2)


def test_an_idle_block_that_is_continued_now_is_no_leaf_any_more():
    history = History(2, POLICIES["lru"]())
    history.insert(0, b"0", None, 0)
    history.let_go(0)
    assert history.peek() == 0
    history.insert(1, b"1", b"0", 1)
    assert history.pop() is None and history.num_reclaimable == 0
    history.let_go(1)
    assert history.pop() == (1, b"1")
