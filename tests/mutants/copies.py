"""Planted bugs of copies of history, of the return path and of the cache's generation."""

from tests.mutants.mutant import ByTests, Mutant

_COPIES = "tests/nodes/test_copies.py"
_HISTORIES = "tests/nodes/test_histories.py"
_NAMED = f"{_COPIES}::test_a_copy_names_its_blocks_at_the_destination_and_holds_nothing[push]"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="copy-names-nothing",
        file="nodes/destination_side.py",
        line="memory.insert(transfer.block_table, hashes, len(hashes))",
        planted="pass",
        why="What was moved is freed instead of becoming history.",
        killer=ByTests((_NAMED,)),
    ),
    Mutant(
        name="copy-keeps-its-blocks",
        file="nodes/destination_side.py",
        line="memory.free(transfer.block_table)",
        planted="pass",
        why="Inserted history is held by nobody and never evicted.",
        killer=ByTests((_NAMED,)),
    ),
    Mutant(
        name="copy-of-a-part",
        file="nodes/source_copies.py",
        line="if rows != job.grant.num_tokens:",
        planted="if not rows:",
        why="A source sends what it does not hold any more.",
        killer=ByTests((f"{_COPIES}::test_a_claim_that_holds_in_part_fails_closed",)),
    ),
    Mutant(
        name="copy-never-times-out",
        file="nodes/copies.py",
        line="if self._context.now_us >= copy.deadline_us:",
        planted="if False:",
        why="A request waits for ever for a prefix that does not come.",
        killer=ByTests((f"{_COPIES}::test_a_copy_that_takes_too_long_is_given_up",)),
    ),
    Mutant(
        name="copy-survives-its-worker",
        file="nodes/copies.py",
        line="if copy.touches(worker_id, epoch):",
        planted="if False:",
        why="A copy of a dead worker is waited for until its deadline.",
        killer=ByTests((f"{_COPIES}::test_a_death_of_the_source_is_heard_at_once",)),
    ),
    Mutant(
        name="copies-without-bound",
        file="nodes/copies.py",
        line="return len(self._open) < self._context.cache.max_copies",
        planted="return True",
        why="Copies crowd out what they should speed up.",
        killer=ByTests((f"{_COPIES}::test_only_so_many_copies_run_at_once",)),
    ),
    Mutant(
        name="returns-without-price",
        file="policy/return_path.py",
        line="return self.saved_us > self.cost_us",
        planted="return True",
        why="History goes back whether or not anybody will go on from it.",
        killer=ByTests((f"{_HISTORIES}::test_a_return_is_priced_and_may_be_declined",)),
    ),
    Mutant(
        name="return-of-the-undrawn-row",
        file="nodes/histories.py",
        line="tokens = (*record.request.prompt_token_ids, *record.output_token_ids[:-1])",
        planted="tokens = (*record.request.prompt_token_ids, *record.output_token_ids)",
        why="The last token has no row, so a whole block with it is in nobody's memory.",
        killer=ByTests((f"{_HISTORIES}::test_the_last_token_of_an_answer_has_no_row",)),
    ),
    Mutant(
        name="clear-told-once",
        file="nodes/cache_generations.py",
        line="elif snapshot.cache_generation < self.current:",
        planted="elif False:",
        why="A worker that missed the word of a clear reuses what was cleared.",
        killer=ByTests((f"{_HISTORIES}::test_a_lost_word_of_the_clear_is_repeated",)),
    ),
    Mutant(
        name="grant-without-generation",
        file="nodes/reservation.py",
        line="cache_generation=context.cache_generation,",
        planted="",
        why="A source that has not heard of a clear fills new history with old rows.",
        killer=ByTests((f"{_HISTORIES}::test_rows_of_before_a_clear_are_not_named_after_it",)),
    ),
    Mutant(
        name="fetched-request-is-lost",
        file="nodes/router.py",
        line="self.context.waiting.appendleft(copy.waiter)",
        planted="pass",
        why="A request whose prefix was fetched is never routed.",
        killer=ByTests(
            (f"{_HISTORIES}::test_a_routed_prefix_is_fetched_where_the_policy_says_so",)
        ),
    ),
)
