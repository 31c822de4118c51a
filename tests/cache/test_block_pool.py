"""BlockPool: four disjoint sets that always sum to the total, reuse by name, least recent out."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton.cache.blocks import BlockPool

NUM_BLOCKS = 6
NAMES = [bytes([i]) for i in range(5)]


class PoolWalk(RuleBasedStateMachine):
    """The model: references per block, names, cached blocks in order of release, quarantine."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.references: dict[int, int] = {}
        self.named: dict[bytes, int] = {}
        self.cached: list[int] = []
        self.quarantined: set[int] = set()

    @property
    def free(self) -> set[int]:
        taken = {*self.references, *self.cached, *self.quarantined}
        return set(range(NUM_BLOCKS)) - taken

    @rule(count=st.integers(0, NUM_BLOCKS))
    def allocate(self, count: int) -> None:
        room = len(self.free) + len(self.cached)
        evicted = self.cached[: max(0, count - len(self.free))]
        blocks = self.pool.allocate(count)
        if count > room:
            assert blocks is None, "and nothing was taken or evicted"
            return
        for block in evicted:
            self.cached.remove(block)
            self.named = {name: held for name, held in self.named.items() if held != block}
        assert blocks == sorted(self.free)[:count], "lowest ids first, least recent evicted"
        self.references.update(dict.fromkeys(blocks, 1))

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.references)))
        self.pool.release(block)
        self.references[block] -= 1
        if not self.references[block]:
            del self.references[block]
            if block in self.named.values():
                self.cached.append(block)

    @precondition(lambda self: self.references)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def name(self, data: st.DataObject, name: bytes) -> None:
        block = data.draw(st.sampled_from(sorted(self.references)))
        self.pool.name(block, name)
        if block not in self.named.values():
            self.named.setdefault(name, block)

    @rule(name=st.sampled_from(NAMES))
    def reuse(self, name: bytes) -> None:
        block = self.pool.lookup(name)
        assert block == self.named.get(name)
        if block is not None:
            self.pool.acquire(block)
            if block in self.cached:
                self.cached.remove(block)
            self.references[block] = self.references.get(block, 0) + 1

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def quarantine(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.references)))
        if self.references[block] == 1 and block not in self.named.values():
            self.pool.quarantine(block)
            del self.references[block]
            self.quarantined.add(block)
        else:  # shared or published history is never taken away
            with pytest.raises(AssertionError):
                self.pool.quarantine(block)

    @precondition(lambda self: self.quarantined)
    @rule(data=st.data())
    def end_quarantine(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.quarantined)))
        for forbidden in (self.pool.acquire, self.pool.release, self.pool.quarantine):
            with pytest.raises(AssertionError):
                forbidden(block)
        self.pool.end_quarantine(block)
        self.quarantined.remove(block)

    @invariant()
    def the_four_sets_are_disjoint_and_complete(self) -> None:
        pool = self.pool
        pool.check()
        assert pool.num_used == len(self.references)
        assert pool.num_cached == len(self.cached)
        assert pool.num_quarantined == len(self.quarantined)
        assert pool.num_free == len(self.free)
        assert pool.num_available == pool.num_free + pool.num_cached
        assert pool.num_used + pool.num_available + pool.num_quarantined == NUM_BLOCKS
        assert {name: pool.lookup(name) for name in self.named} == self.named


PoolWalk.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPoolWalk = PoolWalk.TestCase


def test_a_fresh_pool_gives_contiguous_blocks():
    pool = BlockPool(8)
    assert pool.allocate(3) == [0, 1, 2]
    assert pool.allocate(2) == [3, 4]
    for block in (1, 0, 2):
        pool.release(block)
    assert pool.allocate(3) == [0, 1, 2], "whatever the order of release"


def test_eviction_takes_the_least_recently_released_history_and_forgets_its_name():
    pool = BlockPool(3)
    blocks = pool.allocate(3)
    for block in blocks:
        pool.name(block, bytes([block]))
    for block in (1, 0, 2):
        pool.release(block)
    pool.acquire(1)
    pool.release(1)  # used again: now the most recent
    assert pool.allocate(1) == [0]
    assert pool.num_evicted == 1
    assert pool.lookup(b"\x00") is None
    assert pool.lookup(b"\x01") == 1 and pool.lookup(b"\x02") == 2


def test_free_blocks_are_used_before_history_is_evicted():
    pool = BlockPool(2)
    pool.allocate(1)
    pool.name(0, b"a")
    pool.release(0)
    assert pool.allocate(1) == [1]
    assert pool.lookup(b"a") == 0


def test_an_allocation_that_does_not_fit_evicts_nothing():
    pool = BlockPool(2)
    pool.allocate(2)
    pool.name(0, b"a")
    pool.release(0)
    assert pool.allocate(2) is None
    assert pool.lookup(b"a") == 0 and pool.num_evicted == 0


def test_the_first_holder_keeps_a_name_and_the_second_is_freed_not_cached():
    pool = BlockPool(2)
    pool.allocate(2)
    pool.name(0, b"a")
    pool.name(1, b"a")
    pool.release(1)
    assert (pool.num_free, pool.num_cached) == (1, 0)
    assert pool.lookup(b"a") == 0


def test_a_block_keeps_its_first_name():
    pool = BlockPool(1)
    pool.allocate(1)
    pool.name(0, b"a")
    pool.name(0, b"b")
    assert (pool.lookup(b"a"), pool.lookup(b"b")) == (0, None)


def test_only_a_referenced_block_can_be_named_or_released():
    pool = BlockPool(1)
    for forbidden in (lambda: pool.name(0, b"a"), lambda: pool.release(0)):
        with pytest.raises(AssertionError):
            forbidden()
    assert pool.num_free == 1


def test_a_quarantined_block_is_in_nobodys_hands_until_its_writers_are_quiet():
    pool = BlockPool(2)
    pool.allocate(1)
    pool.quarantine(0)
    assert pool.num_available == 1
    assert pool.allocate(2) is None
    assert pool.allocate(1) == [1]
    pool.end_quarantine(0)
    with pytest.raises(KeyError):
        pool.end_quarantine(0)
    assert pool.allocate(1) == [0]


def test_a_pool_of_nothing_is_refused():
    with pytest.raises(AssertionError):
        BlockPool(0)
