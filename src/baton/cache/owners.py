"""Owners of named blocks as bit positions: a slot per life, and which slots are dead."""

import heapq
from itertools import compress

from baton.core.cache import Place, Tier

SLOT_BITS = 4
"""Bits per slot in a mask: one for each tier, the highest is unused."""
SLOT_MASK = (1 << SLOT_BITS) - 1
TIER_BIT = {Tier.MEMORY: 0, Tier.HOST: 1, Tier.DISK: 2}
_SET_NIBBLES = bytes(0 if digit == ord("0") else 1 for digit in range(256))
_LOWER_TIERS = 0b0110
_FEW = 6


class Owner:
    """One owner, in its newest life that was heard of."""

    def __init__(self, name: str, epoch: int, generation: int, slot: int | None) -> None:
        self.name = name
        self.epoch = epoch
        self.generation = generation
        self.slot = slot
        """None when this life is over."""
        self.counts = dict.fromkeys(Tier, 0)

    @property
    def num_claims(self) -> int:
        """Blocks claimed, once for each tier."""
        return sum(self.counts.values())


class OwnerTable:
    """Gives each life a slot of its own, so that the death of one is a bit and not a walk."""

    def __init__(self) -> None:
        self._owners: dict[str, Owner] = {}
        self._of_slot: list[Owner | None] = []
        self._names: list[str] = []
        self._free: list[int] = []
        self.num_joined = 0
        """Grows whenever a slot gets another name."""
        self.dead: set[int] = set()
        """Slots whose claims are void but may still be written in masks."""
        self.live_mask = 0
        """All bits of the slots that are not dead."""
        self._ones = 0
        self._lower_tiers = 0
        self.num_claims = 0
        self._lowest_generation = 0

    def get(self, name: str) -> Owner | None:
        """The owner of that name, if it lives."""
        owner = self._owners.get(name)
        return owner if owner is not None and owner.slot is not None else None

    def at(self, slot: int) -> Owner | None:
        """Who has this slot now."""
        return self._of_slot[slot]

    def living(self) -> list[Owner]:
        """Everybody with a slot, in the order of slots."""
        return [owner for owner in self._of_slot if owner is not None]

    def current(self, place: Place, *, create: bool) -> Owner | None:
        """The owner if this place is of its newest life and generation; None if it is stale.

        A newer life or generation voids what the older one claimed, at once.
        """
        if place.generation < self._lowest_generation:
            return None
        owner = self._owners.get(place.owner)
        if owner is None:
            return self._join(place) if create else None
        told, known = (place.epoch, place.generation), (owner.epoch, owner.generation)
        if told > known and (owner.slot is not None or place.epoch > owner.epoch):
            self.forget(place.owner)
            return self._join(place)
        return owner if told == known and owner.slot is not None else None

    def _join(self, place: Place) -> Owner:
        slot = self._take_slot()
        owner = Owner(place.owner, place.epoch, place.generation, slot)
        self._owners[place.owner] = owner
        self._of_slot[slot], self._names[slot] = owner, place.owner
        self.live_mask |= SLOT_MASK << SLOT_BITS * slot
        self._ones |= 1 << SLOT_BITS * slot
        self._lower_tiers |= _LOWER_TIERS << SLOT_BITS * slot
        self.num_joined += 1
        return owner

    def _take_slot(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._of_slot.append(None)
        self._names.append("")
        return len(self._of_slot) - 1

    def forget(self, name: str) -> None:
        """The life is over, and every claim of it void."""
        owner = self._owners.get(name)
        if owner is None or owner.slot is None:
            return
        self._void(owner)
        owner.slot = None

    def clear(self, name: str) -> None:
        """Every claim of this life is void; it goes on under a slot of its own."""
        owner = self.get(name)
        if owner is None:
            return
        self._void(owner)
        self._join(Place(name, owner.epoch, Tier.MEMORY, owner.generation))

    def raise_generation(self, generation: int) -> None:
        """Every claim of a lower generation is void, and so are those that still come."""
        self._lowest_generation = max(self._lowest_generation, generation)
        for owner in self.living():
            if owner.generation < generation:
                self.clear(owner.name)

    def _void(self, owner: Owner) -> None:
        assert owner.slot is not None
        self.dead.add(owner.slot)
        self._of_slot[owner.slot] = None
        self.live_mask &= ~(SLOT_MASK << SLOT_BITS * owner.slot)
        self.num_claims -= owner.num_claims
        owner.counts = dict.fromkeys(Tier, 0)

    def bury(self, slots: set[int]) -> None:
        """No mask has bits of these slots any more: others may take them."""
        for slot in sorted(slots):
            self.dead.remove(slot)
            heapq.heappush(self._free, slot)

    def split(self, mask: int) -> tuple[int, int]:
        """The lowest bit of every slot that holds in any tier, and of those that do in memory."""
        if not mask & self._lower_tiers:
            return mask, mask
        return (mask | mask >> 1 | mask >> 2) & self._ones, mask & self._ones

    def names(self, mask: int) -> tuple[str, ...]:
        """The owners whose lowest bits are set."""
        if mask.bit_count() > _FEW:
            # The hexadecimal digits are the slots, and compress picks without a loop of ours.
            digits = f"{mask:x}"[::-1].encode().translate(_SET_NIBBLES)
            return tuple(compress(self._names, digits))
        few = []
        while mask:
            lowest = mask & -mask
            few.append(self._names[(lowest.bit_length() - 1) // SLOT_BITS])
            mask ^= lowest
        return tuple(few)
