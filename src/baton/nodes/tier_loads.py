"""Bringing a prompt's prefix up from lower tiers before it is computed."""

from collections import Counter, OrderedDict
from collections.abc import Callable

from baton.cache.swap import Swap
from baton.cache.tier import TierTable
from baton.core.cache import Tier
from baton.nodes.context import WorkerContext
from baton.nodes.sequence import Sequence

_MAX_REMEMBERED = 1024
_SPARE_FRACTION = 8
"""A load leaves one in so many blocks of memory to those who decode."""


class _Load:
    """Blocks `start ..` of one sequence that are on their way up."""

    def __init__(
        self, sequence: Sequence, table: list[int], start: int, generation: int, deadline_us: int
    ) -> None:
        self.sequence = sequence
        self.table = table
        """The prefix in memory, and the targets after it."""
        self.start = start
        self.generation = generation
        self.deadline_us = deadline_us
        self.is_into_own = bool(sequence.block_table)
        """The targets are the sequence's own blocks, which its reservation holds."""
        self.depths: dict[int, int] = {}
        """Place in the table of each copy under way."""
        self.end = len(table)
        """Up to here every block is there, as far as is known."""


class TierLoads:
    """One load per wait of a sequence, and none after a miss: then its rows are computed.

    What came up becomes history like a prefix that was computed, and the sequence matches it; a
    colocated one has its blocks already and takes the rows as its own. A load is dropped, not
    queued, where memory is short or computing is faster.
    """

    def __init__(
        self,
        context: WorkerContext,
        order: Callable[[Swap], int],
        load_us: Callable[[Tier, int], float],
        compute_us: Callable[[int, int], float],
        on_loaded: Callable[[Sequence], None],
    ) -> None:
        self._context = context
        self._order = order
        self._load_us = load_us
        self._compute_us = compute_us
        self._on_loaded = on_loaded
        self._open: dict[int, _Load] = {}
        self._loads: list[_Load] = []
        self._missed: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loads)

    def begin(self, sequence: Sequence) -> bool:
        """Order what the sequence lacks and a lower tier has; True: it waits until that is here."""
        if sequence.is_loading:
            return True
        memory = self._context.memory
        may_load = sequence.num_loads <= sequence.num_preemptions and not sequence.in_batch
        if not memory.lower or not may_load or sequence.request.request_id in self._missed:
            return False
        size = self._context.layout.block_size
        hashes = sequence.hashes[: sequence.num_reusable // size]
        start = self._num_here(sequence, hashes)
        found = memory.locate(hashes, start)
        if not found or not self._pays(found, start):
            return False
        table = self._targets(sequence, hashes[:start], len(found))
        if table is None:
            self._context.counters["tier_loads_without_room"] += 1
            return False
        self._start(sequence, hashes, found, table)
        return True

    def _num_here(self, sequence: Sequence, hashes: list[bytes]) -> int:
        if sequence.block_table:
            return sequence.num_computed // self._context.layout.block_size
        lookup = self._context.memory.pool.lookup
        return next((i for i, name in enumerate(hashes) if lookup(name) is None), len(hashes))

    def _pays(self, found: list[tuple[TierTable, int]], start: int) -> bool:
        """Whether loading is faster than computing; what was never measured is tried."""
        counts = Counter(table.tier for table, _ in found)
        load_us = sum(self._load_us(tier, count) for tier, count in counts.items())
        size = self._context.layout.block_size
        compute_us = self._compute_us(start * size, (start + len(found)) * size)
        pays = not compute_us or load_us < compute_us
        self._context.counters["tier_loads_too_slow"] += not pays
        return pays

    def _targets(
        self, sequence: Sequence, prefix: list[bytes], num_blocks: int
    ) -> list[int] | None:
        if sequence.block_table:
            return sequence.block_table[: len(prefix) + num_blocks]
        pool = self._context.memory.pool
        table = []
        for block_hash in prefix:
            block = pool.lookup(block_hash)
            assert block is not None
            pool.acquire(block, used=False)
            table.append(block)
        spare = pool.num_blocks // _SPARE_FRACTION
        blocks = None
        if pool.num_available - num_blocks >= spare:
            blocks = pool.allocate(num_blocks)
        if blocks is None:
            self._let_go(table)
        return None if blocks is None else table + blocks

    def _let_go(self, prefix: list[int]) -> None:
        for block in reversed(prefix):
            self._context.memory.pool.release(block, used=False)

    def _start(
        self,
        sequence: Sequence,
        hashes: list[bytes],
        found: list[tuple[TierTable, int]],
        table: list[int],
    ) -> None:
        context, start = self._context, len(table) - len(found)
        deadline_us = context.now_us + context.cache.copy_timeout_ms * 1000
        load = _Load(sequence, table, start, context.memory.generation, deadline_us)
        sequence.is_loading = True
        sequence.num_loads += 1
        wants_it = not sequence.computes_nothing and not sequence.num_preemptions
        swaps = context.memory.swap_in(
            hashes[start : len(table)], found, table[start:], for_prompt=wants_it
        )
        for depth, swap in enumerate(swaps, start=start):
            copy_id = self._order(swap)
            load.depths[copy_id] = depth
            self._open[copy_id] = load
        self._loads.append(load)
        context.trace("tier_load", sequence.fence, num_blocks=len(found), start_block=start)

    def on_copied(self, copy_id: int, swap: Swap, *, holds: bool) -> None:
        """One block of a load is here, or is a miss; with the last one the load ends."""
        load = self._open.pop(copy_id)
        depth = load.depths.pop(copy_id)
        if not holds or swap.generation != self._context.memory.generation:
            load.end = min(load.end, depth)
        if not load.depths:
            self._end(load)

    def _end(self, load: _Load) -> None:
        memory, sequence = self._context.memory, load.sequence
        self._loads.remove(load)
        if load.end < len(load.table):
            self._remember_miss(sequence)
        if load.is_into_own:
            if sequence.is_loading and load.end > load.start:
                rows = load.end * self._context.layout.block_size
                sequence.num_computed = sequence.num_cached_tokens = rows
                memory.count_prompt(0, load.end - load.start)
        else:
            memory.insert(load.table, sequence.hashes, load.end)
            memory.free(load.table[load.start :])
            self._let_go(load.table[: load.start])
        sequence.is_loading = False
        self._context.trace(
            "tier_loaded", sequence.fence, num_blocks=load.end - load.start, start_block=load.start
        )
        self._on_loaded(sequence)

    def _remember_miss(self, sequence: Sequence) -> None:
        self._missed[sequence.request.request_id] = None
        while len(self._missed) > _MAX_REMEMBERED:
            self._missed.popitem(last=False)

    def on_tick(self) -> None:
        """Whoever has waited too long computes; its load keeps its blocks until it ends.

        Rows that are copied into a sequence's own blocks have to be waited for.
        """
        for load in self._loads:
            overdue = self._context.now_us >= load.deadline_us
            if overdue and load.sequence.is_loading and not load.is_into_own:
                load.sequence.is_loading = False
                self._context.counters["tier_loads_overdue"] += 1
                self._remember_miss(load.sequence)

    def held_blocks(self) -> Counter[int]:
        """References that loads hold."""
        held: Counter[int] = Counter()
        for load in self._loads:
            if not load.is_into_own:
                held.update(load.table)
        return held
