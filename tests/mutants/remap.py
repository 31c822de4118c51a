"""Remap: whose heads, which replica, which stride, what is refused, what the proof sees."""

from tests.mutants.mutant import ByTests, Mutant

_MATRIX = "tests/core/remap/test_remap_matrix.py::"
_REFUSALS = "tests/core/remap/test_remap_refusals.py::"
_SENDERS = "tests/core/remap/test_senders.py::"

MUTANTS = (
    Mutant(
        name="heads-of-a-rank-by-remainder",
        file="core/remap/partition.py",
        line="start = (rank % self.tp_size) * self.shape.num_heads // self.tp_size",
        planted="start = rank % self.tp_size % self.shape.num_heads * self.heads_per_rank",
        why="Where ranks outnumber heads, neighbours hold copies of one, not every other rank.",
        killer=ByTests((f"{_SENDERS}test_the_heads_of_a_rank_come_from_the_whole_model",)),
    ),
    Mutant(
        name="first-replica-sends-everything",
        file="core/remap/senders.py",
        line="place = takers.index(rank) * len(replicas) // len(takers)",
        planted="place = 0",
        why="One of several ranks with the same head serves all takers; the others idle.",
        killer=ByTests((f"{_SENDERS}test_takers_in_all_stages_share_the_replicas",)),
    ),
    Mutant(
        name="v-as-wide-as-k",
        file="core/remap/addresses.py",
        line="size = sum(sizes)",
        planted="size = 2 * sizes[plane]",
        why="Outside the kv axis a stride of V leaves out what K is wider.",
        killer=ByTests((f"{_MATRIX}test_k_and_v_may_differ_in_width[baton-baton]",)),
    ),
    Mutant(
        name="runs-grow-over-a-gap-of-the-source",
        file="core/remap/box.py",
        line="if (axis.source_stride, axis.destination_stride) != spans:",
        planted="if axis.destination_stride != spans[1]:",
        why="What adjoins at the destination only is copied as one run.",
        killer=ByTests((f"{_MATRIX}test_every_pair_of_orders[LBNHC]",)),
    ),
    Mutant(
        name="packed-blocks-move-by-slots",
        file="core/remap/plan.py",
        line="moved = Span(tokens.start, (padding if whole_blocks else tokens).stop)",
        planted="moved = tokens",
        why="Slots of a block whose rows a kernel has packed are no rows.",
        killer=ByTests((f"{_MATRIX}test_packed_blocks_move_whole_with_their_padding[2-4]",)),
    ),
    Mutant(
        name="packing-is-not-compared",
        file="core/remap/compatibility.py",
        line="if ours.packing != theirs.packing:",
        planted="if False:",
        why="Tiles of one kernel are handed to another as if they were rows.",
        killer=ByTests((f"{_REFUSALS}test_pairs_that_do_not_fit",)),
    ),
    Mutant(
        name="copies-step-out-of-their-pool",
        file="core/remap/apply.py",
        line="if low < 0 or high > region.nbytes or region.ndim != 1 or region.dtype != np.uint8:",
        planted="if False:",
        why="A view over strides reads and writes whatever lies beside the pool.",
        killer=ByTests((f"{_REFUSALS}test_a_copy_outside_its_allocation_is_not_performed",)),
    ),
    Mutant(
        name="cover-without-origin",
        file="core/remap/cover.py",
        line="held = source.of(int(sender), plane, layers[mine], heads[mine], positions[mine])",
        planted="held = came[mine]",
        why="A plan that fills every byte with some other row passes for exact.",
        killer=ByTests((f"{_REFUSALS}test_the_proof_notices_a_wrong_copy",)),
    ),
    Mutant(
        name="chunks-cross-the-borders-of-stages",
        file="core/manifest.py",
        line="for start, end in itertools.pairwise(sorted(borders))",
        planted="for start, end in [(0, num_layers)]",
        why="A chunk lies in two memories, and what is behind the border comes from the wrong one.",
        killer=ByTests(
            ("tests/nodes/test_pipeline_sizes.py::test_chunks_end_at_the_borders_of_both_sides",)
        ),
    ),
    Mutant(
        name="any-split-is-granted",
        file="nodes/grants.py",
        line="if (splits.source if splits else theirs.pp_size) != layout.pp_size:",
        planted="if False:",
        why="A source cuts its chunks at the borders of stages that it does not have.",
        killer=ByTests(
            ("tests/nodes/test_pipeline_sizes.py::test_a_grant_of_other_splits_is_refused",)
        ),
    ),
    Mutant(
        name="stages-count-layers-from-the-first",
        file="runtime/regions.py",
        line="near_start = (layer - near.first_layer) * near.total",
        planted="near_start = layer * near.total",
        why="A later stage's layers are read from behind its own.",
        killer=ByTests(
            (
                "tests/runtime/test_runs_and_remap.py"
                "::test_chunks_go_from_stage_to_stage_as_the_general_remap_plans",
            )
        ),
    ),
)
