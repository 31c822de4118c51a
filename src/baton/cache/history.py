"""The named slots of one tier: found by hash, given up leaf by leaf, never while held."""

from collections.abc import Callable, Iterator

from baton.cache.eviction import EvictionPolicy, EvictionQueue

Price = Callable[[bytes, int], float]
"""Microseconds that losing a block would cost, by its name and depth."""
_NONE = -1


def no_price(_block_hash: bytes, _depth: int) -> float:
    """Every block is worth the same."""
    return 1.0


class History:
    """Each named slot is held or idle. Only an idle slot without a named child may be given up.

    So what is held of a prompt is always its beginning. A slot is busy while it is held or has a
    busy child: no number of evictions could free it now, and `num_reclaimable` leaves it out.
    """

    def __init__(self, num_slots: int, policy: EvictionPolicy, price: Price | None = None) -> None:
        self._policy = policy
        self.price: Price = price or no_price
        self._queue = EvictionQueue(num_slots)
        self._slot_of: dict[bytes, int] = {}
        self.names: list[bytes | None] = [None] * num_slots
        """By slot; to be read only."""
        self._parents = [_NONE] * num_slots
        self._depths = [0] * num_slots
        self._held = [False] * num_slots
        self._num_children = [0] * num_slots
        self._num_busy = [0] * num_slots  # busy children
        self._num_uses = [0] * num_slots
        self._stamps = [0] * num_slots
        self._clock = 0
        self.num_idle = 0
        self.num_reclaimable = 0

    def __len__(self) -> int:
        return len(self._slot_of)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._slot_of)

    def lookup(self, block_hash: bytes) -> int | None:
        """The slot of this name, if any."""
        return self._slot_of.get(block_hash)

    def hash_of(self, slot: int) -> bytes | None:
        """The name of a slot, if any."""
        return self.names[slot]

    def is_idle(self, slot: int) -> bool:
        """Named, and held by nobody."""
        return self.names[slot] is not None and not self._held[slot]

    def has_children(self, slot: int) -> bool:
        """Another name here continues this one."""
        return self._num_children[slot] > 0

    def parent(self, slot: int) -> bytes | None:
        """The name before this one in its prompt, where this tier holds that."""
        above = self._parents[slot]
        return None if above == _NONE else self.names[above]

    def depth(self, slot: int) -> int:
        """How many blocks stand before it in its prompt."""
        return self._depths[slot]

    def num_uses(self, slot: int) -> int:
        """How often it was used since it has its name."""
        return self._num_uses[slot]

    def cold_first(self) -> list[int]:
        """Idle slots, the one used longest ago first."""
        idle = [slot for slot in self._slot_of.values() if not self._held[slot]]
        return sorted(idle, key=self._stamps.__getitem__)

    # -- names ---------------------------------------------------------------------------------

    def insert(self, slot: int, block_hash: bytes, parent: bytes | None, depth: int) -> None:
        """Name a slot that is held now."""
        assert self.names[slot] is None and block_hash not in self._slot_of
        self._slot_of[block_hash] = slot
        self.names[slot] = block_hash
        self._depths[slot] = depth
        self._held[slot] = True
        self._num_uses[slot] = 1
        above = _NONE if parent is None else self._slot_of.get(parent, _NONE)
        self._parents[slot] = above
        if above != _NONE:
            self._num_children[above] += 1
            self._queue.discard(above)
            self._wake(above)

    def forget(self, slot: int) -> None:
        """A slot loses its name; what hangs below it hangs on nothing from now on."""
        block_hash = self.names[slot]
        assert block_hash is not None
        if self._held[slot] or self._num_busy[slot]:
            self._rest(self._parents[slot])
        else:
            self.num_reclaimable -= 1
            self._queue.discard(slot)
        if not self._held[slot]:
            self.num_idle -= 1
        if self._num_children[slot]:  # rare, and so not worth a list of children each
            for child in self._slot_of.values():
                if self._parents[child] == slot:
                    self._parents[child] = _NONE
            self._num_children[slot] = self._num_busy[slot] = 0
        self._held[slot] = False
        self._unname(slot, block_hash)

    def _unname(self, slot: int, block_hash: bytes) -> None:
        del self._slot_of[block_hash]
        self.names[slot] = None
        above = self._parents[slot]
        if above != _NONE:
            self._num_children[above] -= 1
            if not self._num_children[above] and not self._held[above]:
                self._offer(above)

    def clear(self) -> None:
        """Every name is gone."""
        for slot in self._slot_of.values():
            self.names[slot] = None
            self._held[slot] = False
            self._num_children[slot] = self._num_busy[slot] = 0
            self._queue.discard(slot)
        self._slot_of = {}
        self.num_idle = self.num_reclaimable = 0

    def peek(self) -> int | None:
        """The slot that would be given up next, if any may."""
        return self._queue.peek() if self._queue else None

    def pop(self) -> tuple[int, bytes] | None:
        """Give up the slot that the policy chooses, and its name with it; None if there is none."""
        if not self._queue:
            return None
        slot, rank = self._queue.pop()
        block_hash = self.names[slot]
        assert block_hash is not None and not self._held[slot] and not self._num_children[slot]
        self._policy.gave_up(rank)
        self.num_idle -= 1
        self.num_reclaimable -= 1
        self._unname(slot, block_hash)
        return slot, block_hash

    # -- holding -------------------------------------------------------------------------------

    def touch(self, slot: int) -> None:
        """It is used now."""
        self._clock += 1
        self._stamps[slot] = self._clock

    def use(self, slot: int) -> None:
        """One more reader of a named slot."""
        self._num_uses[slot] += 1

    def hold(self, slot: int) -> None:
        """An idle slot has a reader again."""
        self._held[slot] = True
        self.num_idle -= 1
        if not self._num_busy[slot]:
            self.num_reclaimable -= 1
            if not self._num_children[slot]:
                self._queue.discard(slot)
            self._wake(self._parents[slot])

    def let_go(self, slot: int) -> None:
        """Nobody reads it any more."""
        self._held[slot] = False
        self.num_idle += 1
        if not self._num_busy[slot]:
            self.num_reclaimable += 1
            if not self._num_children[slot]:
                self._offer(slot)
            self._rest(self._parents[slot])

    def reprice(self, slot: int) -> None:
        """What it is worth has changed."""
        if self._policy.needs_price and slot in self._queue:
            self._queue.discard(slot)
            self._offer(slot)

    def _offer(self, slot: int) -> None:
        """An idle leaf may go."""
        depth, price_us = self._depths[slot], 1.0
        if self._policy.needs_price:
            block_hash = self.names[slot]
            assert block_hash is not None
            price_us = self.price(block_hash, depth)
        rank = self._policy.rank(depth, self._num_uses[slot], price_us)
        self._queue.add(slot, rank, self._stamps[slot])

    def _wake(self, slot: int) -> None:
        """It has one more busy child; that may make it busy, and what stands above it."""
        while slot != _NONE:
            self._num_busy[slot] += 1
            if self._held[slot] or self._num_busy[slot] > 1:
                return
            self.num_reclaimable -= 1
            slot = self._parents[slot]

    def _rest(self, slot: int) -> None:
        """It has one busy child less; it may be busy no more, nor what stands above it."""
        while slot != _NONE:
            self._num_busy[slot] -= 1
            if self._held[slot] or self._num_busy[slot]:
                return
            self.num_reclaimable += 1
            slot = self._parents[slot]

    def check(self) -> None:
        """Assert what is counted against what is there; for idle moments and tests."""
        named = set(self._slot_of.values())
        children = {slot: [c for c in named if self._parents[c] == slot] for slot in named}

        def is_busy(slot: int) -> bool:
            return self._held[slot] or any(map(is_busy, children[slot]))

        for block_hash, slot in self._slot_of.items():
            assert self.names[slot] == block_hash
            assert self._num_children[slot] == len(children[slot]), slot
            assert self._num_busy[slot] == sum(map(is_busy, children[slot])), slot
            is_leaf = not self._held[slot] and not children[slot]
            assert (slot in self._queue) == is_leaf, slot
        assert self.num_idle == sum(not self._held[slot] for slot in named)
        assert self.num_reclaimable == sum(not is_busy(slot) for slot in named)
