"""The tiers below memory: history goes down as it is made, and comes up when a prompt wants it."""

from collections import Counter
from collections.abc import Callable

from baton.cache.swap import Swap
from baton.core.cache import Tier, TierLoad
from baton.core.effects import ClearTiers, CopyBlock, DropBlock
from baton.core.events import BlockCopied, TierRecovered
from baton.core.snapshot import Rates
from baton.nodes.context import WorkerContext
from baton.nodes.rates import Ratio
from baton.nodes.sequence import Sequence
from baton.nodes.tier_loads import TierLoads
from baton.policy.routing.price import prefill_us

MAX_STORES = 8
"""Copies downwards that may be under way at once; fewer where memory is small."""


class TierSide:
    """Orders every copy between tiers and judges how it ended. Idle where there is no lower tier.

    `on_loaded` hears of each sequence whose load has ended.
    """

    def __init__(
        self,
        context: WorkerContext,
        rates: Callable[[], Rates],
        on_loaded: Callable[[Sequence], None],
    ) -> None:
        self._context = context
        self._rates = rates
        memory = context.memory
        self._max_stores = min(MAX_STORES, max(1, memory.pool.num_blocks // 8))
        self.swaps: dict[int, Swap] = {}
        """Copies under way, by id."""
        self._num_copies = 0
        self._num_stores = 0
        self._speeds = {table.tier: Ratio(0.0, 0.0) for table in memory.lower}
        self.loads = TierLoads(context, self._order, self._load_us, self._compute_us, on_loaded)
        memory.price_by(self._price_us, self._price_below_us)

    # -- prices --------------------------------------------------------------------------------

    def _compute_us(self, start: int, end: int) -> float:
        """Computing rows `start .. end-1` of a prompt here; 0 until it was measured."""
        return prefill_us(self._rates(), end, start)

    def _load_us(self, tier: Tier, num_blocks: int) -> float:
        """Bringing so many blocks up from a tier; 0 until it was measured."""
        rate = self._speeds[tier].value
        return num_blocks * self._context.layout.bytes_per_block / rate if rate else 0.0

    def _price_us(self, block_hash: bytes, depth: int) -> float:
        """What it costs to have a block again that memory gives up."""
        compute_us = self._price_below_us(block_hash, depth)
        for table in self._context.memory.lower:
            if table.lookup(block_hash) is not None:
                return min(compute_us, self._load_us(table.tier, 1) or compute_us)
        return compute_us

    def _price_below_us(self, _block_hash: bytes, depth: int) -> float:
        """A block that a lower tier gives up has to be computed again."""
        size = self._context.layout.block_size
        return self._compute_us(depth * size, (depth + 1) * size) or 1.0

    # -- work ----------------------------------------------------------------------------------

    def work(self) -> None:
        """After each event: forget what is gone, and copy down what has become history."""
        memory = self._context.memory
        if not memory.lower:
            return
        swaps = memory.swap_out(self._max_stores - self._num_stores)
        self._emit_drops()
        for swap in swaps:
            self._order(swap)

    def _emit_drops(self) -> None:
        for address, block_hash in self._context.memory.take_drops():
            effect = DropBlock(tier=address.tier, slot=address.slot, block_hash=block_hash)
            self._context.emit(effect)

    def _order(self, swap: Swap) -> int:
        self._num_copies += 1
        self._num_stores += not swap.is_load
        self.swaps[self._num_copies] = swap
        self._context.emit(
            CopyBlock(
                copy_id=self._num_copies,
                block_hash=swap.block_hash,
                generation=swap.generation,
                source=swap.source.tier,
                source_slot=swap.source.slot,
                target=swap.target.tier,
                target_slot=swap.target.slot,
            )
        )
        return self._num_copies

    def on_copied(self, event: BlockCopied) -> None:
        """A copy has ended: its target may be named, or it is a miss."""
        swap = self.swaps.pop(event.copy_id, None)
        if swap is None:
            self._context.counters["stale_copies"] += 1
            return
        self._num_stores -= not swap.is_load
        checksum = None if event.error else event.checksum
        holds = self._context.memory.end_swap(swap, checksum)
        verb = "loads" if swap.is_load else "stores"
        if holds and event.duration_us and swap.source.tier in self._speeds:
            self._speeds[swap.source.tier].observe(event.nbytes, event.duration_us)
        if not holds:
            self._context.counters[f"tier_{verb}_lost"] += 1
        if swap.is_load:
            self.loads.on_copied(event.copy_id, swap, holds=holds)

    def clear(self, generation: int) -> bool:
        """No history of a lower generation is reused here; False where that is so already."""
        context = self._context
        if generation <= context.cache_generation:
            return False
        context.memory.clear(generation)
        if context.memory.lower:
            context.emit(ClearTiers(generation=generation))
        return True

    def on_recovered(self, event: TierRecovered) -> None:
        """A tier that outlived its worker: what it has of the newest generation is history here."""
        context = self._context
        self.clear(event.generation)
        entries = event.entries
        if event.generation < context.cache_generation:
            for block_hash, _ in entries:
                context.emit(DropBlock(tier=event.tier, slot=-1, block_hash=block_hash))
            return
        context.counters["tier_recovered"] += context.memory.recover(event.tier, entries)

    # -- looking -------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """No copy is under way."""
        return not self.swaps

    def held_blocks(self) -> Counter[int]:
        """References to blocks of memory that copies hold."""
        held = self.loads.held_blocks()
        held.update(s.source.slot for s in self.swaps.values() if s.source.tier is Tier.MEMORY)
        return held

    def report(self) -> tuple[TierLoad, ...]:
        """Every tier now, fastest first."""
        memory = self._context.memory
        history = memory.pool.history
        first = TierLoad(
            tier=Tier.MEMORY,
            num_blocks=memory.pool.num_blocks,
            num_named=len(history),
            num_reclaimable=history.num_reclaimable,
            num_hits=memory.num_hits,
        )
        return (
            first,
            *(
                TierLoad(
                    tier=table.tier,
                    num_blocks=table.num_slots,
                    num_named=table.num_named,
                    num_reclaimable=table.num_reclaimable,
                    num_hits=table.num_hits,
                    bytes_per_us=self._speeds[table.tier].value,
                )
                for table in memory.lower
            ),
        )

    def counters(self) -> dict[str, int]:
        """Named outcomes of memory and of the tiers below it so far."""
        memory = self._context.memory
        counts = {
            "evictions": memory.pool.num_evicted,
            "prefix_blocks_asked": memory.num_asked,
            "prefix_blocks_found": memory.num_hits,
        }
        for table in memory.lower:
            counts |= {
                f"{table.tier}_hits": table.num_hits,
                f"{table.tier}_misses": table.num_misses,
                f"{table.tier}_stores": table.num_stores,
                f"{table.tier}_evictions": table.num_evicted,
                f"{table.tier}_corrupt": table.num_corrupt,
            }
        if memory.lower:
            counts["tier_skipped_stores"] = memory.num_skipped_stores
        return counts
