"""Routes, admission, fairness: each planted bug takes away what defines a policy or a promise."""

from tests.mutants.mutant import ByTests, Mutant

_PURE = "tests/policy/test_route_policies.py::"
_AT_ROUTER = "tests/nodes/test_routes.py::"

MUTANTS = (
    Mutant(
        name="ratio-is-not-exceeded-by-having-nothing",
        file="policy/routing/conductor.py",
        line="remote = [best > depth * ratio for depth in held]",
        planted="remote = [best > depth * ratio and depth > 0 for depth in held]",
        why="A worker that holds nothing never gets a copy.",
        killer=ByTests((f"{_PURE}test_who_holds_nothing_exceeds_every_threshold",)),
    ),
    Mutant(
        name="ratio-is-met-at-equality",
        file="policy/routing/conductor.py",
        line="remote = [best > depth * ratio for depth in held]",
        planted="remote = [best >= depth * ratio for depth in held]",
        why="A prefix that is longer by exactly the threshold is copied.",
        killer=ByTests((f"{_PURE}test_the_longest_prefix_loses_to_a_short_queue",)),
    ),
    Mutant(
        name="fetch-without-its-price",
        file="policy/routing/memserve.py",
        line="return total_us(terms)[0] <= local[index]",
        planted="return terms[1][0] <= local[index]",
        why="A prefix is fetched though moving it takes longer than computing it.",
        killer=ByTests((f"{_PURE}test_a_fetch_pays_from_the_link_rate_of_the_formula",)),
    ),
    Mutant(
        name="pairs-by-one-sum",
        file="policy/routing/pair.py",
        line="prices = [max(first + bid[0], second + bid[1]) for bid in near]",
        planted="prices = [first + bid[0] for bid in near]",
        why="A transfer counts as hidden however slow the link is.",
        killer=ByTests((f"{_PURE}test_a_transfer_counts_where_no_prefill_hides_it",)),
    ),
    Mutant(
        name="transfer-set-of-the-compute-set",
        file="policy/routing/choosing.py",
        line="reuse = decode_reuse_tokens(question, decode)",
        planted="reuse = cached",
        why="What the source reuses is taken for what the destination holds.",
        killer=ByTests((f"{_PURE}test_both_sides_reuse_apart",)),
    ),
    Mutant(
        name="whole-prompt-is-reused",
        file="policy/routing/question.py",
        line="return (self.num_tokens - 1) // self.block_size",
        planted="return self.num_tokens // self.block_size",
        why="A prompt that is cached to its last row has nothing left to draw a token from.",
        killer=ByTests((f"{_AT_ROUTER}test_a_cached_prefix_is_followed_and_priced_on_both_sides",)),
    ),
    Mutant(
        name="stale-load",
        file="nodes/account.py",
        line="self.total += amount - self._amounts.get(request_id, 0)",
        planted="self.total += amount",
        why="A request that is put on an account twice counts twice for ever.",
        killer=ByTests((f"{_AT_ROUTER}test_a_load_is_kept_until_something_of_it_changes",)),
    ),
    Mutant(
        name="target-starts-at-the-turn",
        file="nodes/routes.py",
        line="ttft_us=max(1, ttft_us - waited_us) if ttft_us else 0,",
        planted="ttft_us=ttft_us,",
        why="Time that a request has waited in line does not count against its target.",
        killer=ByTests(
            (f"{_AT_ROUTER}test_time_that_a_request_has_waited_counts_against_its_target",)
        ),
    ),
    Mutant(
        name="idle-tenants-save-up",
        file="policy/fairness.py",
        line="self._served[tenant] = max(self.served(tenant), lowest)",
        planted="pass",
        why="Who was idle shuts everybody else out until it has caught up.",
        killer=ByTests(
            (
                "tests/policy/test_fairness.py::test_the_first_to_wait_is_first"
                "_among_equals_and_an_empty_line_keeps_its_floor",
            )
        ),
    ),
    Mutant(
        name="decodes-never-end",
        file="policy/admission.py",
        line="and (not question.decode_us or at_us < request.decodes_from_us + question.decode_us)",
        planted="",
        why="Requests that will be gone by then count against a new one.",
        killer=ByTests(("tests/policy/test_admission.py::test_the_count_is_of_now_or_of_then",)),
    ),
)
