"""vLLM servers of unequal tensor-parallel sizes: which heads, and all legs together or none."""

from tests.mutants.mutant import ByTests, Mutant

_LEGS = "tests/integrations/vllm/test_legs.py::"
_SUPPORT = "tests/integrations/vllm/test_support.py::"

MUTANTS = (
    Mutant(
        name="first-verified-leg-publishes",
        file="integrations/vllm/legs.py",
        line="if not load.unverified and not load.reason:",
        planted="if not load.reason:",
        why="A rank's blocks hold other heads, too, and those may still be refused.",
        killer=ByTests(
            (f"{_LEGS}test_a_source_lets_go_only_when_all_its_destinations_heads_are_there",)
        ),
    ),
    Mutant(
        name="first-taker-frees-the-prompt",
        file="integrations/vllm/legs.py",
        line="if not waiting and self._awaited.pop(vllm_id, None) is not None:",
        planted="if self._awaited.pop(vllm_id, None) is not None:",
        why="Another rank of the destination still reads its heads from the same blocks.",
        killer=ByTests(
            (f"{_LEGS}test_a_prompt_is_kept_until_the_last_destination_rank_has_its_heads",)
        ),
    ),
    Mutant(
        name="lost-leg-leaves-the-others",
        file="integrations/vllm/legs.py",
        line="self._collect(other, node.on_sibling_lost(load.order, reason, self._now_us))",
        planted="self._collect(other, [])",
        why="Nobody wants the other heads any more, and their source ranks keep them.",
        killer=ByTests((f"{_LEGS}test_one_lost_rank_of_two_is_enough",)),
    ),
    Mutant(
        name="heads-land-where-they-came-from",
        file="integrations/vllm/memory.py",
        line="(here + own, there + other, nbytes)",
        planted="(here + own, there + own, nbytes)",
        why="The heads of a rank lie elsewhere in the block of another tensor-parallel size.",
        killer=ByTests((f"{_LEGS}test_a_push_streams_every_rank_its_heads[2-4-8]",)),
    ),
    Mutant(
        name="heads-side-by-side-in-a-slot",
        file="integrations/vllm/support.py",
        line="if source.tp_size != destination.tp_size and source.cache_order not in HEAD_ORDERS:",
        planted="if False:",
        why="Where heads alternate in every slot no head of a block lies in one piece.",
        killer=ByTests(
            (f"{_SUPPORT}test_other_tensor_parallel_sizes_pair_where_heads_can_be_cut",)
        ),
    ),
)
