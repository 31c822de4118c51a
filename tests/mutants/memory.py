"""Blocks, names and preemption: what is in memory, whose it is, and what may be read of it."""

from tests.mutants.mutant import ByTests, Mutant, Vopr

_ROOT = "parts = (identity.digest, layout.digest, str(layout.block_size), tenant_id, salt)"

_NAMES = (
    Mutant(
        name="prefix-without-tenant",
        file="cache/prefix.py",
        line=_ROOT,
        planted=_ROOT.replace("tenant_id, ", ""),
        why="Tenants share history, and with it a timing channel.",
        killer=Vopr(("tenants-are-apart",), seeds=(1,)),
    ),
    Mutant(
        name="prefix-without-salt",
        file="cache/prefix.py",
        line=_ROOT,
        planted=_ROOT.replace(", salt", ""),
        why="Requests that asked to be apart share history.",
        killer=Vopr(("tenants-are-apart",), seeds=(1,)),
    ),
    Mutant(
        name="prefix-without-model",
        file="cache/prefix.py",
        line=_ROOT,
        planted=_ROOT.replace("identity.digest, ", ""),
        why="History of another checkpoint or adapter is reused.",
        killer=ByTests(
            ("tests/cache/test_prefix_chain.py::test_another_model_or_adapter_is_another_root",)
        ),
    ),
    Mutant(
        name="prefix-without-layout",
        file="cache/prefix.py",
        line=_ROOT,
        planted=_ROOT.replace("layout.digest, str(layout.block_size), ", ""),
        why="History of another layout or block size is reused.",
        killer=ByTests(
            ("tests/cache/test_prefix_chain.py::test_another_layout_or_block_size_is_another_root",)
        ),
    ),
    Mutant(
        name="prefix-parts-run-together",
        file="cache/prefix.py",
        line='state.update(len(data).to_bytes(4, "little") + data)',
        planted="state.update(data)",
        why="Tenant 'a' with salt 'bc' is taken for tenant 'ab' with salt 'c'.",
        killer=ByTests(
            (
                "tests/cache/test_prefix_chain.py::test_another_tenant_or_salt_is_another_root"
                "_even_when_they_concatenate_alike",
            )
        ),
    ),
    Mutant(
        name="chain-without-parent",
        file="cache/prefix.py",
        line="parent = _link(parent, data[start : start + nbytes])",
        planted="parent = _link(root, data[start : start + nbytes])",
        why="A block is found by its own tokens, whatever stands before them.",
        killer=Vopr(
            (
                "reads-are-true",
                "published-is-true",
            ),
            seeds=(2,),
        ),
    ),
    Mutant(
        name="partial-block-named",
        file="cache/prefix.py",
        line="for start in range(0, len(data) - nbytes + 1, nbytes):",
        planted="for start in range(0, len(data), nbytes):",
        why="A block that will be written on is published as history.",
        killer=Vopr(("writes-are-owned", "history-is-true"), seeds=(1,)),
    ),
    Mutant(
        name="named-before-computed",
        file="nodes/source_side.py",
        line="sequence.block_table = table",
        planted="sequence.block_table = table; memory.insert("
        "table, sequence.hashes, len(sequence.hashes))",
        why="A prompt that waits for compute offers its empty blocks as history.",
        killer=Vopr(("writes-are-owned", "node-raises"), seeds=(1,)),
    ),
    Mutant(
        name="named-before-published",
        file="nodes/local_side.py",
        line="sequence.block_table = list(transfer.block_table)",
        planted="sequence.block_table = list(transfer.block_table); "
        "self._context.memory.insert("
        "sequence.block_table, sequence.hashes, len(sequence.hashes))",
        why="A colocated prompt is history before its rows exist.",
        killer=Vopr(("writes-are-owned", "node-raises"), seeds=(1,)),
    ),
    Mutant(
        name="generated-rows-named-early",
        file="nodes/decode_side.py",
        line="computed = sequence.tokens[: sequence.num_computed]",
        planted="computed = sequence.tokens",
        why="The row of the last token, which nobody has computed, becomes history.",
        killer=Vopr(
            (
                "history-is-true",
                "published-is-true",
                "reads-are-true",
            ),
            seeds=(170,),
        ),
    ),
    Mutant(
        name="name-outlives-eviction",
        file="cache/history.py",
        line="del self._slot_of[block_hash]",
        planted="pass",
        why="Evicted history is found again in a block that holds something else.",
        killer=Vopr(
            (
                "reads-are-true",
                "published-is-true",
                "node-raises",
            ),
            seeds=(1,),
        ),
    ),
    Mutant(
        name="second-holder-takes-the-name",
        file="cache/blocks.py",
        line="if self._names[block] is None and held(block_hash) is None:",
        planted="if self._names[block] is None:",
        why="Two blocks have one name, and the eviction of one forgets the other.",
        killer=ByTests(
            (
                "tests/cache/test_block_pool.py"
                "::test_the_first_holder_keeps_a_name_and_the_second_is_freed_not_cached",
            )
        ),
    ),
    Mutant(
        name="prefix-not-pinned",
        file="cache/pool.py",
        line="self.pool.acquire(block)",
        planted="pass",
        why="A reused prefix can be evicted under its reader.",
        killer=Vopr(("blocks-have-owners",), seeds=(1,)),
    ),
    Mutant(
        name="history-freed",
        file="cache/blocks.py",
        line="self.history.hold(block)",
        planted="pass",
        why="A pinned block stays on the list of what may be evicted.",
        killer=Vopr(
            (
                "node-raises",
                "blocks-add-up",
            ),
            seeds=(1,),
        ),
    ),
)

_OWNERS = (
    Mutant(
        name="denial-keeps-the-prefix",
        file="nodes/reservation.py",
        line="context.memory.free(table)",
        planted="pass",
        why="A denied reservation leaves its prefix pinned.",
        killer=Vopr(
            ("blocks-have-owners",),
            seeds=(10,),
        ),
    ),
    Mutant(
        name="grant-includes-the-prefix",
        file="nodes/reservation.py",
        line="block_ids=tuple(table[num_pinned:end]),",
        planted="block_ids=tuple(table[:end]),",
        why="A peer may write into history that others read.",
        killer=Vopr(("node-raises",), seeds=(1,)),
    ),
    Mutant(
        name="preemption-keeps-blocks",
        file="nodes/engine_queue.py",
        line="sequence.block_table = []",
        planted="pass",
        why="A preempted sequence reads blocks that it has given back.",
        killer=Vopr(("blocks-have-owners",), seeds=(10,)),
    ),
    Mutant(
        name="readmitted-rows-not-computed",
        file="nodes/decode_side.py",
        line="sequence.num_computed = cached",
        planted="sequence.num_computed = len(sequence.tokens) - 1",
        why="A preempted sequence goes on from rows that nobody computed again.",
        killer=Vopr(("reads-are-true",), seeds=(22,)),
    ),
    Mutant(
        name="freed-while-computing",
        file="nodes/decode_side.py",
        line="if self._queue.remove(sequence):",
        planted="if self._queue.remove(sequence) or True:",
        why="A cancelled sequence frees blocks that the running batch writes.",
        killer=Vopr(("writes-are-owned",), seeds=(2,)),
    ),
    Mutant(
        name="wrong-start-of-rows",
        file="nodes/source_side.py",
        line="sequence.num_computed = sequence.num_cached_tokens = cached",
        planted="sequence.num_computed = sequence.num_cached_tokens = "
        "min(cached + layout.block_size, len(sequence.tokens) - 1)",
        why="One block more than was found counts as reused.",
        killer=Vopr(("reads-are-true",), seeds=(0,)),
    ),
)

MUTANTS = (*_NAMES, *_OWNERS)
