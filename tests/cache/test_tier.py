"""Lower tiers as bookkeeping: whole slots only, pinned while copied, checksums, generations."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton.cache.changes import ChangeLog
from baton.cache.eviction import LRU
from baton.cache.swap import Swap
from baton.cache.tier import TIER_SLOT, SlotState, TierTable
from baton.core.cache import Address, CacheChange, Tier
from tests.cache.pools import pool_of, prompt, serve

NAMES = [bytes([n]) for n in range(6)]
NUM_SLOTS = 4


class TierWalk(RuleBasedStateMachine):
    """The model: names being written, whole, read so many times, or void until a copy ends."""

    def __init__(self) -> None:
        super().__init__()
        self.log = ChangeLog()
        self.log.is_enabled = True
        self.table = TierTable(Tier.HOST, NUM_SLOTS, LRU(), self.log)
        self.writing: dict[bytes, int] = {}
        self.whole: dict[bytes, int] = {}
        self.readers: list[tuple[bytes, int]] = []
        self.void: set[int] = set()
        self.told: set[bytes] = set()

    @property
    def taken(self) -> set[int]:
        read = {slot for _, slot in self.readers}
        return {*self.writing.values(), *self.whole.values(), *read}

    @rule(name=st.sampled_from(NAMES), parent=st.sampled_from([None, *NAMES]))
    def reserve(self, name: bytes, parent: bytes | None) -> None:
        is_known = self.table.knows(name)
        parent = None if parent == name else parent
        slot = self.table.reserve(name, parent, 1)
        if slot is None:
            assert is_known or len(self.taken) == NUM_SLOTS
            return
        assert slot not in self.taken and not is_known
        self.writing[name] = slot

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), fails=st.booleans())
    def end_write(self, data: st.DataObject, fails: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.writing)))
        slot = self.writing.pop(name)
        if fails:
            self.table.fail(slot)
        else:
            visible = self.table.seal(slot, slot * 7)
            assert visible == (slot not in self.void)
            if visible:
                self.whole[name] = slot
        self.void.discard(slot)

    @precondition(lambda self: self.whole)
    @rule(data=st.data())
    def begin_read(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.whole)))
        self.table.begin_read(self.whole[name])
        self.readers.append((name, self.whole[name]))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def end_read(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        self.readers.remove(reader)
        is_last = reader not in self.readers
        assert self.table.end_read(reader[1]) == (is_last and reader[1] in self.void)
        if is_last:
            self.void.discard(reader[1])

    @rule()
    def evict(self) -> None:
        evicted = self.table.evict()
        if evicted is not None:
            slot, name = evicted
            assert self.whole.pop(name) == slot and (name, slot) not in self.readers

    @precondition(lambda self: self.whole)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.whole)))
        slot = self.whole.pop(name)
        is_read = (name, slot) in self.readers
        assert self.table.drop(slot) != is_read
        if is_read:
            self.void.add(slot)

    @rule()
    def clear(self) -> None:
        read = {slot for _, slot in self.readers}
        free = {(slot, name) for name, slot in self.whole.items() if slot not in read}
        assert set(self.table.clear()) == free
        self.void |= {slot for slot in self.whole.values() if slot in read}
        self.void |= set(self.writing.values())
        self.whole = {}

    @invariant()
    def only_what_is_whole_is_found(self) -> None:
        self.table.check()
        assert {name: slot for name in NAMES if (slot := self.table.lookup(name)) is not None} == (
            self.whole
        )
        assert self.table.num_free == NUM_SLOTS - len(self.taken)
        for slot in self.whole.values():
            is_read = any(slot == read for _, read in self.readers)
            assert self.table.state(slot) is (SlotState.READING if is_read else SlotState.STORED)
            assert self.table.checksum(slot) == slot * 7
        for change in self.log.take():
            names = set(change.hashes)
            self.told = self.told | names if change.stored else self.told - names
        assert self.told == set(self.whole)


TierWalk.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTierWalk = TierWalk.TestCase


def test_a_slot_goes_through_its_states_and_no_others():
    assert TIER_SLOT.initial is SlotState.FREE
    assert not TIER_SLOT.terminal, "a slot is used again and again"
    writable = {state for state, given in TIER_SLOT.rows if given == "reserve"}
    assert writable == {SlotState.FREE}


# -- copies --------------------------------------------------------------------------------------


def finish(memory, swaps: list[Swap], checksum: int | None = 5) -> list[bool]:
    return [memory.end_swap(swap, checksum) for swap in swaps]


def swapped_out(memory, tokens=range(8)) -> list[bytes]:
    hashes = serve(memory, prompt(tokens))
    while swaps := memory.swap_out(8):
        finish(memory, swaps)
    return hashes


def test_history_goes_down_shallow_first_and_is_pinned_until_the_copy_has_ended():
    memory = pool_of(32, owner="w", epoch=3, num_host_blocks=8)
    hashes = serve(memory, prompt(range(8)))
    swaps = memory.swap_out(3)
    assert [swap.block_hash for swap in swaps] == hashes[:3]
    assert swaps[0].source == Address("w", 3, Tier.MEMORY, 0)
    assert swaps[0].target.tier is Tier.HOST
    assert memory.pool.num_used == 3 and memory.lower[0].lookup(hashes[0]) is None
    assert finish(memory, swaps) == [True] * 3
    assert memory.pool.num_used == 0 and memory.lower[0].lookup(hashes[0]) is not None
    assert [swap.block_hash for swap in memory.swap_out(8)] == hashes[3:]
    assert memory.swap_out(8) == [], "nothing goes down twice"


def test_a_copy_that_fails_leaves_nothing_and_is_not_tried_for_ever():
    memory = pool_of(32, num_host_blocks=8)
    serve(memory, prompt(range(4)))
    assert finish(memory, memory.swap_out(8), None) == [False, False]
    assert memory.lower[0].num_free == 8 and memory.pool.num_used == 0
    assert len(memory.take_drops()) == 2
    assert memory.swap_out(8) == []


def test_a_block_goes_down_once_for_each_time_that_it_is_named():
    memory = pool_of(20, num_host_blocks=8)
    hashes = swapped_out(memory, range(32))
    host = memory.lower[0]
    assert host.num_stores == 16 and host.num_evicted == 8
    for _ in range(3):  # memory has all of it, whatever the host gave up
        swapped_out(memory, range(32))
    assert host.num_stores == 16
    memory.delete(hashes[12:])
    swapped_out(memory, range(32))
    assert host.num_stores == 20, "what was named anew goes down again"


def test_a_copy_that_failed_is_tried_again_when_the_block_is_used_again():
    memory = pool_of(20, num_host_blocks=8)
    serve(memory, prompt(range(4)))
    finish(memory, memory.swap_out(8), None)
    swapped_out(memory, range(4))
    assert memory.lower[0].num_stores == 2


def test_nothing_is_pinned_while_memory_is_short():
    memory = pool_of(8, num_host_blocks=8)
    serve(memory, prompt(range(4)))
    table: list[int] = []
    assert memory.allocate(table, 14)
    assert memory.swap_out(8) == [], "its pin could cost somebody the last block"


def test_more_than_the_queue_holds_is_skipped_and_counted(monkeypatch):
    monkeypatch.setattr("baton.cache.swapping.MAX_QUEUED", 3)
    memory = pool_of(32, num_host_blocks=32)
    hashes = serve(memory, prompt(range(10)))
    assert [swap.block_hash for swap in memory.swap_out(8)] == hashes[:3]
    assert memory.num_skipped_stores == 2


def test_a_full_host_demotes_its_coldest_block_and_drops_it_above():
    memory = pool_of(32, num_host_blocks=8, num_disk_blocks=8)
    hashes = serve(memory, prompt(range(16)))
    finish(memory, memory.swap_out(7))
    swaps = memory.swap_out(8)
    demotions = [s for s in swaps if s.target.tier is Tier.DISK]
    assert demotions and demotions[0].block_hash == hashes[6], "the leaf of what is there"
    assert memory.lower[0].state(demotions[0].source.slot) is SlotState.READING
    finish(memory, swaps)
    host, disk = memory.lower
    assert host.lookup(hashes[6]) is None and disk.lookup(hashes[6]) is not None
    assert (Address("", 0, Tier.HOST, demotions[0].source.slot), hashes[6]) in memory.take_drops()


def test_a_block_that_goes_bad_on_the_host_does_not_reach_the_disk():
    memory = pool_of(32, num_host_blocks=1, num_disk_blocks=8)
    serve(memory, prompt(range(2)))
    finish(memory, memory.swap_out(8))
    [demotion] = memory.swap_out(8)
    assert not memory.end_swap(demotion, 6)
    host, disk = memory.lower
    assert (host.num_named, disk.num_named, host.num_corrupt) == (0, 0, 1)


def test_a_load_is_verified_against_what_went_down():
    memory = pool_of(16, num_host_blocks=8)
    hashes = swapped_out(memory)
    found = memory.locate(hashes, 0)
    assert len(found) == 4
    blocks = memory.pool.allocate(4)
    swaps = memory.swap_in(hashes, found, blocks)
    assert all(swap.is_load for swap in swaps)
    assert finish(memory, swaps[:1]) == [True]
    assert finish(memory, swaps[1:2], 6) == [False], "other bytes"
    assert finish(memory, swaps[2:], None) == [False, False]
    lower = memory.lower[0]
    assert (lower.num_hits, lower.num_misses, lower.num_corrupt) == (1, 3, 1)
    assert len(memory.locate(hashes, 0)) == 1, "who missed is forgotten"


def test_history_is_no_target_of_a_load():
    memory = pool_of(16, num_host_blocks=8)
    hashes = swapped_out(memory)
    named = memory.match(hashes, 1)
    with pytest.raises(AssertionError, match="is history"):
        memory.swap_in(hashes[:1], memory.locate(hashes[:1], 0), named)


# -- the whole -----------------------------------------------------------------------------------


def test_a_clear_frees_history_and_bars_what_is_in_use():
    memory = pool_of(16, num_host_blocks=8)
    memory.announce()
    hashes = swapped_out(memory)
    held = memory.match(hashes, 2)
    memory.take_changes()
    memory.clear(1)
    assert (memory.pool.num_cached, memory.pool.num_used) == (0, 2)
    assert memory.lower[0].num_named == 0
    assert {(c.stored, c.tier) for c in memory.take_changes()} == {
        (False, Tier.MEMORY),
        (False, Tier.HOST),
    }
    memory.insert(held, hashes, 2)
    assert memory.match(hashes, 2) == [], "old rows are never named again"
    memory.free(held)
    assert memory.pool.num_free == 16
    serve(memory, prompt(range(8)))
    assert len(memory.match(hashes, 9)) == 4, "the same blocks with new rows are"


def test_a_copy_that_is_under_way_during_a_clear_names_nothing():
    memory = pool_of(32, num_host_blocks=8)
    hashes = serve(memory, prompt(range(8)))
    swaps = memory.swap_out(8)
    memory.clear(1)
    assert finish(memory, swaps) == [False] * 4
    assert memory.lower[0].num_free == 8 and memory.pool.num_free == 32
    assert memory.locate(hashes, 0) == []


def test_a_deleted_name_is_gone_in_every_tier_but_not_what_others_continue():
    memory = pool_of(32, num_host_blocks=16)
    memory.announce()
    long = swapped_out(memory, range(8))
    other = swapped_out(memory, [0, 1, 2, 3, 9, 9])
    memory.take_changes()
    assert memory.delete(long) == 2
    assert memory.match(other, 9) and memory.locate(other, 0)
    assert memory.locate(long, 2) == []
    assert CacheChange(stored=False, tier=Tier.MEMORY, hashes=(long[3], long[2])) in (
        memory.take_changes()
    )


def test_what_an_earlier_life_left_is_taken_in_as_far_as_there_is_room():
    memory = pool_of(16, num_disk_blocks=2)
    memory.announce()
    entries = [(name, 5) for name in NAMES[:3]]
    assert memory.recover(Tier.DISK, entries) == 2
    assert [name for _, name in memory.take_drops()] == [NAMES[2]]
    assert memory.take_changes() == [
        CacheChange(stored=True, tier=Tier.DISK, hashes=tuple(NAMES[:2]))
    ]
    assert memory.recover(Tier.HOST, entries) == 0, "there is no such tier"


def test_only_active_rows_may_be_written():
    memory = pool_of(8)
    hashes = serve(memory, prompt(range(4)))
    table = memory.match(hashes, 2)
    assert memory.allocate(table, 6)
    assert memory.is_active(table, 4, 6)
    assert not memory.is_active(table, 3, 6) and not memory.is_active(table, 0, 1)
