"""Owners of named blocks as bit positions: a slot per life, and which slots are dead."""

import heapq
from itertools import compress

from baton.core.cache import Place, Tier

SLOT_BITS = 4
"""Bits per slot in a mask: one for each tier, the highest is unused."""
SLOT_MASK = (1 << SLOT_BITS) - 1
TIER_BIT = {Tier.MEMORY: 0, Tier.HOST: 1, Tier.DISK: 2}
_SET_NIBBLES = bytes(0 if digit == ord("0") else 1 for digit in range(256))
_MAX_REMEMBERED = 4096


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
        self._named: dict[int, tuple[str, ...]] = {}
        self.dead: set[int] = set()
        """Slots whose claims are void but may still be written in masks."""
        self.live_mask = 0
        """All bits of the slots that are not dead."""
        self.ones = 0
        """The lowest bit of every slot."""
        self.num_claims = 0

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
        owner = self._owners.get(place.owner)
        if owner is None:
            return self._join(place) if create else None
        told, known = (place.epoch, place.generation), (owner.epoch, owner.generation)
        if told > known and (owner.slot is not None or place.epoch > owner.epoch):
            self.forget(place.owner)
            return self._join(place) if create else None
        return owner if told == known and owner.slot is not None else None

    def _join(self, place: Place) -> Owner:
        slot = self._take_slot()
        owner = Owner(place.owner, place.epoch, place.generation, slot)
        self._owners[place.owner] = owner
        self._of_slot[slot], self._names[slot] = owner, place.owner
        self.live_mask |= SLOT_MASK << SLOT_BITS * slot
        self.ones |= 1 << SLOT_BITS * slot
        self._named.clear()
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

    def names(self, mask: int) -> tuple[str, ...]:
        """The owners of the slots that are set in a mask of lowest bits."""
        known = self._named.get(mask)
        if known is None:
            # The hexadecimal digits are the slots, and compress picks without a loop of ours.
            digits = f"{mask:x}"[::-1].encode().translate(_SET_NIBBLES)
            known = tuple(compress(self._names, digits))
            if len(self._named) >= _MAX_REMEMBERED:
                self._named.clear()
            self._named[mask] = known
        return known
