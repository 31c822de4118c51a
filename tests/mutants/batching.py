"""Batch policies: each planted bug takes away what defines one of them."""

from tests.mutants.mutant import ByTests, Mutant

_ON_WORKERS = "tests/nodes/test_batch_policies.py::"
_BY_FUNCTION = "tests/policy/test_batch_policies.py::"

MUTANTS = (
    Mutant(
        name="orca-skips-ahead",
        file="policy/batching/orca.py",
        line="if len(chosen) >= limits.max_num_seqs or entry.is_short:",
        planted="if len(chosen) >= limits.max_num_seqs:",
        why="A request that got no blocks is chosen all the same.",
        killer=ByTests((f"{_BY_FUNCTION}test_a_prompt_that_gets_no_blocks_is_not_chosen[orca]",)),
    ),
    Mutant(
        name="orca-forgets-reservations",
        file="policy/batching/orca.py",
        line="reserved = sum(entry.reserved_tokens for entry in entries if entry.num_iterations)",
        planted="reserved = 0",
        why="Requests start whose whole length does not fit beside the others.",
        killer=ByTests(
            (f"{_BY_FUNCTION}test_orca_reserves_the_whole_length_and_does_not_skip_ahead",)
        ),
    ),
    Mutant(
        name="orca-serves-by-phase",
        file="policy/batching/orca.py",
        line="entries = view.in_arrival_order()",
        planted="entries = [*view.decodes, *view.prefills]",
        why="A later request that decodes runs more iterations than an earlier prompt.",
        killer=ByTests(
            (f"{_BY_FUNCTION}test_orca_takes_the_earliest_whatever_their_phase_and_does_not_cut",)
        ),
    ),
    Mutant(
        name="static-lets-others-join",
        file="policy/batching/static.py",
        line="if members:",
        planted="if False:",
        why="A new request joins a batch that has started.",
        killer=ByTests((f"{_ON_WORKERS}test_static_release_time_is_the_maximum_over_the_batch",)),
    ),
    Mutant(
        name="static-releases-early",
        file="nodes/decode_side.py",
        line="if reason and self._queue.policy.releases_together:",
        planted="if False:",
        why="A finished request leaves before its batch.",
        killer=ByTests((f"{_ON_WORKERS}test_static_release_time_is_the_maximum_over_the_batch",)),
    ),
    Mutant(
        name="sarathi-anchors-with-nothing-left",
        file="policy/batching/chunked.py",
        line="rows = cut(anchor, limits.max_batch_tokens - len(piggybacked), limits.grid)",
        planted="rows = cut(anchor, limits.max_batch_tokens, limits.grid)",
        why="The fused rows exceed the tile by the decodes.",
        killer=ByTests(
            (
                f"{_BY_FUNCTION}test_sarathi_anchors_a_step_with_one_chunk"
                "_and_fills_the_tile_exactly",
            )
        ),
    ),
    Mutant(
        name="impatience-forgotten",
        file="policy/batching/priority.py",
        line="return aged or 0 < limits.max_passed_over <= entry.num_passed_over",
        planted="return aged",
        why="A stream that was passed over too often waits on.",
        killer=ByTests(
            (f"{_BY_FUNCTION}test_prefill_first_leaves_decodes_out_until_they_lose_patience",)
        ),
    ),
    Mutant(
        name="preemption-cap-ignored",
        file="policy/batching/preemption.py",
        line="if not (capped or aged):",
        planted="if not aged:",
        why="The same sequence yields again and again while another one could.",
        killer=ByTests(
            (f"{_BY_FUNCTION}test_the_latest_yields_unless_it_has_yielded_often_or_is_old",)
        ),
    ),
    Mutant(
        name="started-prompt-overtaken",
        file="policy/batching/priority.py",
        line="return [*started, *window, *rest]",
        planted="return [*window, *started, *rest]",
        why="Shortest-first interrupts a prompt that has begun.",
        killer=ByTests(
            (
                f"{_BY_FUNCTION}test_prompt_order_looks_no_further_than_its_window"
                "_and_never_at_a_started_prompt",
            )
        ),
    ),
)
