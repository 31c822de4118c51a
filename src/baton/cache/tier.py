"""One lower tier as bookkeeping: slots by name, with checksums; the host moves the bytes."""

from enum import StrEnum

from baton.cache.changes import ChangeLog
from baton.cache.eviction import EvictionPolicy
from baton.cache.history import History
from baton.core.cache import Tier
from baton.core.machine import Machine, Table


class SlotState(StrEnum):
    """Of one slot of a lower tier."""

    FREE = "free"
    WRITING = "writing"
    """A copy into it is under way: nobody may read it."""
    STORED = "stored"
    READING = "reading"
    """Copies out of it are under way: nobody may write it."""


class SlotInput(StrEnum):
    """What happens to a slot."""

    RESERVE = "reserve"
    SEAL = "seal"
    RECOVER = "recover"
    READ = "read"
    END_READ = "end_read"
    DROP = "drop"


TIER_SLOT = Table(
    "tier slot",
    SlotState.FREE,
    {
        (SlotState.FREE, SlotInput.RESERVE): SlotState.WRITING,
        (SlotState.FREE, SlotInput.RECOVER): SlotState.STORED,
        (SlotState.WRITING, SlotInput.SEAL): SlotState.STORED,
        (SlotState.WRITING, SlotInput.DROP): SlotState.FREE,
        (SlotState.STORED, SlotInput.READ): SlotState.READING,
        (SlotState.STORED, SlotInput.DROP): SlotState.FREE,
        (SlotState.READING, SlotInput.END_READ): SlotState.STORED,
    },
)


class _Slot:
    """What is known of one slot."""

    __slots__ = ("block_hash", "checksum", "depth", "is_void", "machine", "num_readers", "parent")

    def __init__(self) -> None:
        self.machine: Machine[SlotState, SlotInput] = Machine(TIER_SLOT)
        self.block_hash = b""
        self.parent: bytes | None = None
        self.depth = 0
        self.checksum = 0
        self.num_readers = 0
        self.is_void = False
        """Dropped while a copy touches it: it is free once that has ended."""


class TierTable:
    """Found by name are slots that are whole; they stay while anybody reads them.

    All names are of the cache's present generation: `clear` drops the others at once.
    """

    def __init__(
        self, tier: Tier, num_slots: int, policy: EvictionPolicy, changes: ChangeLog
    ) -> None:
        assert num_slots > 0
        self.tier = tier
        self.num_slots = num_slots
        self.history = History(num_slots, policy)
        self._changes = changes
        self._slots = [_Slot() for _ in range(num_slots)]
        self._free = list(range(num_slots - 1, -1, -1))
        self._slot_of: dict[bytes, int] = {}
        self.num_hits = 0
        self.num_misses = 0
        self.num_stores = 0
        self.num_evicted = 0
        self.num_corrupt = 0

    @property
    def num_free(self) -> int:
        """Slots that hold nothing."""
        return len(self._free)

    @property
    def num_named(self) -> int:
        """Slots that can be found by name."""
        return len(self.history)

    @property
    def num_reclaimable(self) -> int:
        """Of those, what could be given up now."""
        return self.history.num_reclaimable

    def state(self, slot: int) -> SlotState:
        """State of a slot."""
        return self._slots[slot].machine.state

    def lookup(self, block_hash: bytes) -> int | None:
        """The slot that holds this name whole, if any."""
        return self.history.lookup(block_hash)

    def knows(self, block_hash: bytes) -> bool:
        """A slot holds it, or is being written with it, or is being left by it."""
        return block_hash in self._slot_of

    def standing(self, slot: int) -> tuple[bytes | None, int]:
        """The name before this slot's in its prompt, as far as it is known, and its depth."""
        return self._slots[slot].parent, self._slots[slot].depth

    def checksum(self, slot: int) -> int:
        """Of the bytes when they were written."""
        return self._slots[slot].checksum

    # -- writing -------------------------------------------------------------------------------

    def reserve(self, block_hash: bytes, parent: bytes | None, depth: int) -> int | None:
        """A free slot to write this block into; None if there is none, or it is known."""
        if not self._free or block_hash in self._slot_of:
            return None
        return self._take(SlotInput.RESERVE, block_hash, parent, depth)

    def _take(self, given: SlotInput, block_hash: bytes, parent: bytes | None, depth: int) -> int:
        slot = self._free.pop()
        item = self._slots[slot]
        item.machine.feed(given)
        item.block_hash, item.parent, item.depth = block_hash, parent, depth
        self._slot_of[block_hash] = slot
        return slot

    def seal(self, slot: int, checksum: int) -> bool:
        """It is written to its end and can be found; False when it was dropped meanwhile."""
        item = self._slots[slot]
        if item.is_void:
            self._release(slot)
            return False
        item.machine.feed(SlotInput.SEAL)
        self.num_stores += 1
        self._publish(slot, checksum)
        return True

    def fail(self, slot: int) -> None:
        """The write has failed: nothing may be said of the slot."""
        self._release(slot)

    def recover(self, block_hash: bytes, checksum: int) -> bool:
        """An earlier life has left this block; False when it is known or there is no room."""
        if not self._free or block_hash in self._slot_of:
            return False
        self._publish(self._take(SlotInput.RECOVER, block_hash, None, 0), checksum)
        return True

    def _publish(self, slot: int, checksum: int) -> None:
        item = self._slots[slot]
        item.checksum = checksum
        self.history.insert(slot, item.block_hash, item.parent, item.depth)
        self.history.let_go(slot)
        self._changes.stored(self.tier, item.block_hash)

    # -- reading -------------------------------------------------------------------------------

    def begin_read(self, slot: int, *, used: bool = True) -> None:
        """A copy out of it is ordered: it stays as it is until that has ended."""
        item = self._slots[slot]
        if not item.num_readers:
            item.machine.feed(SlotInput.READ)
            self.history.hold(slot)
        item.num_readers += 1
        if used:
            self.history.use(slot)
            self.history.touch(slot)

    def end_read(self, slot: int) -> bool:
        """A copy out of it has ended; True when that was the last and the slot is free now."""
        item = self._slots[slot]
        item.num_readers -= 1
        if item.num_readers:
            return False
        item.machine.feed(SlotInput.END_READ)
        if item.is_void:
            self._release(slot)
            return True
        self.history.let_go(slot)
        return False

    # -- giving up -----------------------------------------------------------------------------

    def coldest(self) -> int | None:
        """The slot that would go next, if any may go."""
        return self.history.peek()

    def evict(self) -> tuple[int, bytes] | None:
        """Give up the slot that the policy chooses; None if none may go."""
        evicted = self.history.pop()
        if evicted is None:
            return None
        slot, block_hash = evicted
        self._changes.removed(self.tier, block_hash)
        self._release(slot)
        self.num_evicted += 1
        return slot, block_hash

    def drop(self, slot: int) -> bool:
        """Nobody finds it from now on. True: it is free; else it is once its copies have ended."""
        item = self._slots[slot]
        if item.machine.state is SlotState.WRITING:
            item.is_void = True
            return False
        if not item.is_void:
            self.history.forget(slot)
            self._changes.removed(self.tier, item.block_hash)
        if item.num_readers:
            item.is_void = True
            return False
        self._release(slot)
        return True

    def clear(self) -> list[tuple[int, bytes]]:
        """Drop everything; returns what is free already, slot and name."""
        return [(slot, name) for name, slot in list(self._slot_of.items()) if self.drop(slot)]

    def _release(self, slot: int) -> None:
        item = self._slots[slot]
        item.machine.feed(SlotInput.DROP)
        del self._slot_of[item.block_hash]
        item.is_void = False
        self._free.append(slot)

    def check(self) -> None:
        """Assert that slots, names and history agree."""
        self.history.check()
        taken = [s for s in range(self.num_slots) if self.state(s) is not SlotState.FREE]
        assert sorted([*taken, *self._free]) == list(range(self.num_slots))
        assert sorted(self._slot_of.values()) == taken
        for slot in taken:
            item = self._slots[slot]
            is_whole = item.machine.state is not SlotState.WRITING and not item.is_void
            assert (self.history.lookup(item.block_hash) == slot) == is_whole
            assert (item.num_readers > 0) == (item.machine.state is SlotState.READING)
            if is_whole:
                assert self.history.is_idle(slot) == (item.num_readers == 0)
