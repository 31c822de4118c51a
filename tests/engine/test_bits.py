"""K/V and logits are equal bit for bit however rows are chunked, batched, placed or replayed."""

import random

import pytest
from engine_models import Sequence_, item, load, prompt, run_mixed, step

from baton.core.work import Batch
from baton.engine import build
from baton.engine.ops import TorchOps


def prefill(engine, ids, cuts, table):
    """Prefill `ids` in chunks that end at `cuts`; K/V digest, first token, its logits digest."""
    start = 0
    for end in [*cuts, len(ids)]:
        result = step(engine, item(ids, start, end, table, len(ids), verify=True))
        start = end
    (sampled,) = result.sampled
    return engine.kv_digest(table, len(ids)), sampled.token_id, sampled.logits_digest


@pytest.mark.parametrize("length", [2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 150])
def test_chunking(engine, length):
    assert engine.deterministic
    ids, table = prompt(length, length), list(range(20))
    whole = prefill(engine, ids, [], table)
    for chunk in (1, 7, 16, 19, 48, 64, 100):
        cuts = list(range(chunk, length, chunk))
        assert prefill(engine, ids, cuts, table) == whole, chunk
    assert prefill(engine, ids, [length - 1], table) == whole


def test_random_chunkings(engine):
    choose = random.Random(5)
    ids, table = prompt(201, 9), list(range(40, 20, -1))
    whole = prefill(engine, ids, [], table)
    for _ in range(12):
        cuts = sorted(choose.sample(range(1, 201), choose.randrange(1, 9)))
        assert prefill(engine, ids, cuts, table) == whole, cuts


def test_block_table_and_stale_bytes(engine):
    ids = prompt(77, 1)
    whole = prefill(engine, ids, [], [0, 1, 2, 3, 4])
    engine.pool.tensor.fill_(1e30)
    assert prefill(engine, ids, [33], [90, 2, 55, 7, 31]) == whole


def test_block_size(tiny, engine):
    ids = prompt(77, 1)
    whole = prefill(engine, ids, [], list(range(5)))
    for size in (1, 8, 64):
        other = load(tiny, block_size=size, self_test=False)
        assert prefill(other, ids, [50], list(range(other.info.layout.num_blocks(77)))) == whole


def test_batch_composition(engine):
    """Sequences run alone, then all together in mixed steps, in other blocks."""
    lengths = (75, 64, 3, 1, 40)
    alone = []
    for i, length in enumerate(lengths):
        sequence = Sequence_(str(i), prompt(length, i), list(range(8)))
        run_mixed(engine, [sequence], chunk=512, count=12)
        digest = engine.kv_digest(sequence.table, len(sequence.token_ids) - 1)
        alone.append((sequence.token_ids, sequence.digests, digest))
    together = [
        Sequence_(str(i), prompt(length, i), list(range(10 + 8 * i, 18 + 8 * i)))
        for i, length in enumerate(lengths)
    ]
    run_mixed(engine, together, chunk=29, count=12)
    for sequence, expected in zip(together, alone, strict=True):
        digest = engine.kv_digest(sequence.table, len(sequence.token_ids) - 1)
        assert (sequence.token_ids, sequence.digests, digest) == expected


@pytest.mark.parametrize("length", [15, 16, 17, 64, 70])
def test_replay_of_generated_rows(engine, length):
    """After a fault, prompt and generated tokens are computed again, chunked in any way."""
    sequence = Sequence_("a", prompt(length, 4), list(range(8)))
    run_mixed(engine, [sequence], chunk=512, count=20)
    computed = len(sequence.token_ids) - 1
    expected = engine.kv_digest(sequence.table, computed)
    for cuts in ([], [length], [length - 1], [length + 3], [5, length + 1, computed - 1]):
        table, start = list(range(60, 70)), 0
        for end in [*cuts, computed]:
            work = item(sequence.token_ids, start, end, table, length, verify=True)
            result, start = step(engine, work), end
        assert engine.kv_digest(table, computed) == expected, cuts
        assert result.sampled[0].token_id == sequence.token_ids[-1]
        assert result.sampled[0].logits_digest == sequence.digests[-1]


def test_moved_blocks_continue_bit_for_bit(tiny, engine):
    """The handoff: whole blocks copied as bytes to other blocks of another engine's buffer."""
    colocated = Sequence_("a", prompt(75, 3), list(range(8)))
    run_mixed(engine, [colocated], chunk=512, count=10)
    destination = load(tiny, self_test=False)
    layout = destination.info.layout
    assert layout.digest == engine.info.layout.digest
    assert destination.info.identity.digest == engine.info.identity.digest
    buffer = bytearray(b"\xff" * (96 * layout.bytes_per_block))
    destination.bind_pool(memoryview(buffer), 96)
    moved = Sequence_("a", prompt(75, 3), [50, 3, 77, 12, 30, 31, 32, 33])
    run_mixed(engine, [moved_source := Sequence_("a", prompt(75, 3), range(80, 88))], 64, 1)
    for layer in range(layout.num_layers):
        for source, target in zip(moved_source.table[:5], moved.table[:5], strict=True):
            at = (layer * 96 + target) * layout.layer_block_nbytes
            block = engine.pool.layers[layer][source].contiguous().numpy().tobytes()
            buffer[at : at + layout.layer_block_nbytes] = block
    moved.token_ids, moved.num_computed = list(moved_source.token_ids), 75
    moved.digests = list(moved_source.digests)
    run_mixed(destination, [moved], chunk=512, count=10)
    assert moved.token_ids == colocated.token_ids
    assert moved.digests == colocated.digests
    rows = len(moved.token_ids) - 1
    assert destination.kv_digest(moved.table, rows) == engine.kv_digest(colocated.table, rows)


def test_torch_path_is_invariant_too(tiny, monkeypatch):
    monkeypatch.setattr(build, "make_ops", lambda config, threads: TorchOps(batched=False))
    engine = load(tiny)
    assert engine.deterministic, engine.deterministic_report
    ids = prompt(77, 1)
    whole = prefill(engine, ids, [], [0, 1, 2, 3, 4])
    assert prefill(engine, ids, [33, 76], [90, 2, 55, 7, 31]) == whole


def test_zero_tail(engine):
    """Behind the last prompt row nothing of the block's earlier owner is left."""
    ids, table = prompt(70, 2), [5, 6, 7, 8, 9]
    engine.pool.tensor.fill_(3.0)
    step(engine, item(ids, 0, 64, table, 70))
    assert bool((engine.pool.tensor[:, 9] == 3.0).all())
    step(engine, item(ids, 64, 70, table, 70))
    assert bool((engine.pool.tensor[:, 9, :, :, 6:] == 0).all())
    assert bool((engine.pool.tensor[:, 9, :, :, :6] != 0).any())
    first = engine.pool.tensor[:, table].clone()
    engine.pool.tensor.fill_(-1.0)
    step(engine, item(ids, 0, 70, [40, 41, 42, 43, 44], 70))
    assert bool((engine.pool.tensor[:, 40:45] == first).all())


def test_layer_hook_sees_final_rows(engine):
    ids, table = prompt(60, 8), [4, 3, 2, 1]
    step(engine, item(ids, 0, 32, table, 60))
    seen = []

    def on_layer(layer):
        seen.append((layer, engine.pool.layers[layer][table].clone()))

    step(engine, item(ids, 32, 60, table, 60), on_layer=on_layer)
    assert [layer for layer, _ in seen] == list(range(engine.info.layout.num_layers))
    for layer, rows in seen:
        assert bool((rows == engine.pool.layers[layer][table]).all())


def test_digest_covers_exactly_the_rows(engine):
    ids, table = prompt(20, 8), [4, 3]
    step(engine, item(ids, 0, 20, table, 20))
    before = engine.kv_digest(table, 20)
    engine.pool.tensor[:, 3, :, :, 4:] = 9.0
    assert engine.kv_digest(table, 20) == before
    engine.pool.tensor[-1, 3, 1, -1, 3, -1] += 1.0
    assert engine.kv_digest(table, 20) != before
    assert engine.kv_digest(table, 19) == engine.kv_digest([4, 3, 0], 19)


def test_empty_batch(engine):
    assert engine.execute(Batch(batch_id=7, items=())).sampled == ()
