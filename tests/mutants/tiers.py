"""Eviction and the tiers below memory: who goes, what is pinned by a copy, what comes up."""

from tests.mutants.mutant import ByTests, Mutant, Vopr

_TIERS = "tests/cache/test_tier.py::"
_SIDE = "tests/nodes/test_tier_side.py::"
_EVICTION = "tests/cache/test_eviction.py::"

MUTANTS = (
    Mutant(
        name="prefix-evicted-under-its-continuation",
        file="cache/history.py",
        line="if not self._num_children[above] and not self._held[above]:",
        planted="if not self._held[above]:",
        why="A prompt's beginning is given up while another prompt's end still needs it.",
        killer=ByTests(
            (f"{_EVICTION}test_a_beginning_is_given_up_after_everything_that_continues_it[lru]",),
        ),
    ),
    Mutant(
        name="continued-block-stays-on-offer",
        file="cache/history.py",
        line="self._queue.discard(above)",
        planted="pass",
        why="A block that was a leaf once is given up though a name continues it now.",
        killer=ByTests(
            (f"{_EVICTION}test_an_idle_block_that_is_continued_now_is_no_leaf_any_more",),
        ),
    ),
    Mutant(
        name="eviction-forgets-use",
        file="cache/blocks.py",
        line="self.history.touch(block)",
        planted="pass",
        why="What was used just now is given up as if nobody had wanted it since it was made.",
        killer=ByTests(
            (f"{_EVICTION}test_hits_of_a_trace_are_those_of_a_brute_force_lru[24]",),
        ),
    ),
    Mutant(
        name="once-popular-for-ever",
        file="cache/eviction.py",
        line="self._floor = max(self._floor, rank[0])",
        planted="pass",
        why="What was dear and popular once is never given up again.",
        killer=ByTests((f"{_EVICTION}test_cost_aware_forgets_that_something_was_popular_once",)),
    ),
    Mutant(
        name="reload-counts-as-recompute",
        file="nodes/tier_side.py",
        line="return min(compute_us, self._load_us(table.tier, 1) or compute_us)",
        planted="return compute_us",
        why="Memory keeps what the host has as dearly as what nobody else has.",
        killer=ByTests((f"{_SIDE}test_a_block_that_the_host_holds_is_cheaper_to_give_up",)),
    ),
    Mutant(
        name="store-does-not-pin",
        file="cache/swapping.py",
        line="self._pool.acquire(block, used=False)",
        planted="pass",
        why="A block is evicted and written again while it is copied down under its old name.",
        killer=Vopr(("node-raises", "blocks-have-owners"), seeds=(3,)),
    ),
    Mutant(
        name="stored-at-every-use",
        file="cache/blocks.py",
        line="if used and self.notes_idle and block not in self._was_copied:",
        planted="if used and self.notes_idle:",
        why="A small host takes all that memory holds again at each reading, and serves none.",
        killer=ByTests((f"{_TIERS}test_a_block_goes_down_once_for_each_time_that_it_is_named",)),
    ),
    Mutant(
        name="copies-count-as-hits",
        file="nodes/tier_loads.py",
        line="wants_it = not sequence.computes_nothing and not sequence.num_preemptions",
        planted="wants_it = True",
        why="What a copy brings up looks like a prompt's hit.",
        killer=ByTests(("tests/nodes/test_hits.py::test_a_copy_that_had_to_come_up_is_no_hit",)),
    ),
    Mutant(
        name="load-is-not-verified",
        file="cache/swapping.py",
        line="return checksum is not None and checksum == table.checksum(slot)",
        planted="return checksum is not None",
        why="Bytes that rotted below memory become history again.",
        killer=Vopr(("history-is-true", "published-is-true", "reads-are-true"), seeds=(5,)),
    ),
    Mutant(
        name="missed-blocks-inserted",
        file="nodes/tier_loads.py",
        line="memory.insert(load.table, sequence.hashes, load.end)",
        planted="memory.insert(load.table, sequence.hashes, len(load.table))",
        why="Blocks whose load failed get the names of what should have come.",
        killer=Vopr(("history-is-true",), seeds=(5,)),
    ),
    Mutant(
        name="local-abort-while-loading",
        file="nodes/local_side.py",
        line="if self._queue.remove(sequence) and not sequence.is_loading:",
        planted="if self._queue.remove(sequence):",
        why="A colocated abort frees blocks into which a load is still copied.",
        killer=ByTests(
            (f"{_SIDE}test_a_request_that_is_cancelled_while_its_prefix_loads_leaves_nothing",),
        ),
    ),
    Mutant(
        name="old-rows-named-after-a-clear",
        file="cache/blocks.py",
        line="self._barred = {block for block, count in enumerate(self._references) if count}",
        planted="self._barred = set()",
        why="A sequence that ran through a clear brings the cleared history back.",
        killer=ByTests(
            (
                f"{_TIERS}test_a_clear_frees_history_and_bars_what_is_in_use",
                f"{_SIDE}test_a_clear_empties_every_tier_and_what_is_in_use_never_becomes_history",
            )
        ),
    ),
    Mutant(
        name="older-files-taken-in",
        file="nodes/tier_side.py",
        line="if event.generation < context.cache_generation:",
        planted="if False:",
        why="A disk that slept through a clear brings the cleared history back.",
        killer=ByTests(
            (f"{_SIDE}test_older_files_are_dropped_and_newer_ones_raise_the_generation",)
        ),
    ),
    Mutant(
        name="clear-forgotten-by-the-disk",
        file="nodes/tier_side.py",
        line="context.emit(ClearTiers(generation=generation))",
        planted="pass",
        why="A later life takes in files of before the clear that nobody had time to remove.",
        killer=ByTests((f"{_SIDE}test_a_clear_is_remembered_by_the_disk_however_it_was_heard_of",)),
    ),
)
