"""What the router believes of workers' caches: in order, whole, and of lives that are not over."""

from tests.mutants.mutant import ByTests, Mutant

_STREAM = "tests/cache/test_change_stream.py::"
_INDEX = "tests/cache/test_block_index.py::"

MUTANTS = (
    Mutant(
        name="feed-ignores-gaps",
        file="cache/change_feed.py",
        line="if known < 0:",
        planted="if known < -9:",
        why="Changes after a lost one are applied to a state that is not theirs.",
        killer=ByTests((_STREAM + "test_a_gap_changes_nothing_until_it_is_told_again",)),
    ),
    Mutant(
        name="feed-applies-twice",
        file="cache/change_feed.py",
        line="fresh = message.changes[known:]",
        planted="fresh = message.changes",
        why="A repeated word brings back what has been removed since.",
        killer=ByTests(
            (
                _STREAM + "test_a_repeated_change_is_recognised_and_a_partly_known_one_taken_"
                "from_where_it_is_new",
            )
        ),
    ),
    Mutant(
        name="pages-count-one-by-one",
        file="cache/change_feed.py",
        line="if len(self._pages) < message.num_pages:",
        planted="if not self._pages:",
        why="Between two pages a worker is believed to hold only a part.",
        killer=ByTests(
            (_STREAM + "test_what_is_too_old_to_be_replayed_comes_as_pages_that_count_together",)
        ),
    ),
    Mutant(
        name="last-change-never-missed",
        file="nodes/holdings.py",
        line="self._ask(self._feeds[info.worker_id], snapshot.cache_sequence)",
        planted="self._ask(self._feeds[info.worker_id], 0)",
        why="A lost change after which nothing changes is never noticed.",
        killer=ByTests(
            (
                "tests/nodes/test_holdings.py::"
                "test_a_lost_last_change_is_noticed_at_the_next_heartbeat",
            )
        ),
    ),
    Mutant(
        name="dead-claims-count",
        file="cache/owners.py",
        line="self.live_mask &= ~(SLOT_MASK << SLOT_BITS * owner.slot)",
        planted="self.live_mask &= -1",
        why="A route is sent to bytes that died with their worker.",
        killer=ByTests(
            (_INDEX + "test_a_dead_owner_is_gone_at_once_and_its_late_words_change_nothing",)
        ),
    ),
    Mutant(
        name="slot-reused-before-its-sweep",
        file="cache/index.py",
        line="if self._shard == _NUM_SHARDS:",
        planted="if self._kept is not None:",
        why="A new worker inherits what a dead one claimed.",
        killer=ByTests((_INDEX + "test_a_slot_is_taken_again_only_after_its_sweep",)),
    ),
    Mutant(
        name="late-words-of-a-cleared-cache",
        file="cache/owners.py",
        line="if place.generation < self._lowest_generation:",
        planted="if place.generation < 0:",
        why="What was on its way when the operator cleared the cache is claimed after it.",
        killer=ByTests(
            (_STREAM + "test_a_cleared_cache_is_empty_at_once_though_its_worker_has_not_followed",)
        ),
    ),
)
