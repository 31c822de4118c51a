"""The numba kernels against their torch reference, and the grid attention against a plain one."""

import numpy as np
import pytest
import torch
from engine_models import item, prompt

from baton.core.layout import KVLayout
from baton.core.work import Batch
from baton.engine.attention import Attention
from baton.engine.numba_ops import NumbaOps
from baton.engine.ops import AttentionSpec, TorchOps
from baton.engine.pool import Pool
from baton.engine.step import plan

SHAPES = [(2, 2, 16, 16), (3, 3, 64, 16), (1, 8, 32, 4), (4, 1, 80, 1), (2, 2, 24, 32)]
"""(kv heads, q heads per kv head, head dim, block size)"""


def make(kv_heads, dim, size, seed=0):
    layout = KVLayout(num_layers=1, num_kv_heads=kv_heads, head_dim=dim, block_size=size)
    pool = Pool(layout, 400)
    pool.tensor.normal_(generator=torch.Generator().manual_seed(seed))
    return pool


def decode_step(size, lengths):
    """Decode rows at the given lengths, in shuffled blocks, and a prefill chunk between them."""
    order = np.random.default_rng(1).permutation(400).tolist()
    items = []
    for i, length in enumerate(lengths):
        count = -(-length // size)
        table, order = order[:count], order[count:]
        ids = prompt(length, i)
        start = length - 1 if i != 1 else 0
        items.append(item(ids, start, length, table, length if i == 1 else 1, str(i)))
    return plan(Batch(batch_id=0, items=tuple(items)), size, lambda rows: rows + 3), items


def poison(pool, items, size):
    """Make every slot that no row may read NaN."""
    visible = torch.zeros(pool.num_blocks, size, dtype=torch.bool)
    for work in items:
        for position in range(work.end):
            visible[work.block_table[position // size], position % size] = True
    pool.tensor.masked_fill_(~visible[None, :, None, None, :, None], float("nan"))


@pytest.mark.parametrize(("kv_heads", "group", "dim", "size"), SHAPES)
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (9, 0.0), (0, 2.0), (5, 3.0)])
def test_decode(kv_heads, group, dim, size, window, softcap):
    pool = make(kv_heads, dim, size)
    step, items = decode_step(size, (1, 20, 2, 15, 16, 17, 70))
    poison(pool, items, size)
    width = kv_heads * group * dim
    q = torch.randn(step.num_padded, width + 5, generator=torch.Generator().manual_seed(2))
    spec = AttentionSpec(scale=0.3, window=window, softcap=softcap)
    results = []
    for ops in (NumbaOps(), TorchOps(batched=False), TorchOps(batched=True)):
        out = torch.full((step.num_padded, width), 7.0)
        ops.decode(q, step, pool, 0, spec, out)
        results.append(out)
        step.cache.clear()
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, rtol=2e-5, atol=2e-6)
    untouched = sorted(set(range(step.num_padded)) - set(step.decode_rows.tolist()))
    assert bool((results[0][untouched] == 7.0).all())


@pytest.mark.parametrize("window", [0, 21])
@pytest.mark.parametrize("size", [32, 64])
def test_bits_of_decode_do_not_depend_on_the_size_of_long_blocks(size, window):
    kv_heads, dim, lengths = 3, 64, (2, 15, 16, 17, 31, 33, 63, 64, 65, 200)
    q = torch.randn(3, 3 * kv_heads * dim, generator=torch.Generator().manual_seed(4))
    spec = AttentionSpec(scale=0.3, window=window, softcap=0.0)
    small, large = make(kv_heads, dim, 16), make(kv_heads, dim, size)
    rows = small.tensor[0, :16].permute(1, 2, 0, 3, 4).reshape(2, kv_heads, -1, dim)
    large.tensor[0, : 256 // size] = rows.unflatten(2, (-1, size)).permute(2, 0, 1, 3, 4)
    for length in lengths:
        outs = []
        for pool in (small, large):
            own = pool.layout.block_size
            table = list(range(-(-length // own)))
            work = item(prompt(length, 0), length - 1, length, table, 1)
            step = plan(Batch(batch_id=0, items=(work,)), own, lambda rows: rows)
            out = torch.empty(1, 3 * kv_heads * dim)
            NumbaOps().decode(q, step, pool, 0, spec, out)
            outs.append(out)
        assert torch.equal(*outs), length


def test_decode_attention_by_hand():
    """Three keys, one head: softmax of known scores over known values."""
    pool = make(1, 2, 4)
    pool.tensor[0, 0, 0, 0, :3] = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    pool.tensor[0, 0, 1, 0, :3] = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    work = item([5, 5, 5], 2, 3, [0], 1)
    step = plan(Batch(batch_id=0, items=(work,)), 4, lambda rows: rows)
    out = torch.empty(1, 2)
    q = torch.tensor([[np.log(2.0), 0.0]], dtype=torch.float32)
    NumbaOps().decode(q, step, pool, 0, AttentionSpec(scale=1.0), out)
    torch.testing.assert_close(out, torch.tensor([[5 / 7, 6 / 7]]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("kv_heads", "group", "dim", "size"), SHAPES)
@pytest.mark.parametrize("normed", [False, True])
def test_rope_and_write(kv_heads, group, dim, size, normed):
    step, _ = decode_step(size, (1, 20, 2, 70))
    width = (group + 2) * kv_heads * dim
    generator = torch.Generator().manual_seed(3)
    qkv = torch.randn(step.num_padded, width, generator=generator)
    rope = torch.randn(100, dim, generator=generator)
    norms = torch.rand(2, dim, generator=generator) if normed else torch.empty(2, 0)
    outcomes = []
    for ops in (NumbaOps(), TorchOps(batched=False)):
        pool, rows = make(kv_heads, dim, size), qkv.clone()
        ops.rope_and_write(rows, norms, 1e-5, rope, step, pool, 0)
        outcomes.append((rows[: step.num_rows, : group * kv_heads * dim], pool.tensor))
        step.cache.clear()
    for ours, reference in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [1, 7, 64, 576])
def test_row_operations(width):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(9, 2 * width, generator=generator) * 20
    weight, half = torch.rand(width, generator=generator), x[:, :width].contiguous()
    numba, torch_ops = NumbaOps(), TorchOps(batched=False)
    torch.testing.assert_close(numba.silu_mul(x), torch_ops.silu_mul(x), rtol=2e-6, atol=1e-6)
    torch.testing.assert_close(
        numba.rms_norm(half, weight, 1e-5), torch_ops.rms_norm(half, weight, 1e-5)
    )
    sums = [half.clone(), half.clone()]
    norms = [ops.add_rms_norm(half * 2, s, weight, 1e-5)
             for ops, s in zip((numba, torch_ops), sums, strict=True)]  # fmt: skip
    torch.testing.assert_close(norms[0], norms[1])
    assert torch.equal(sums[0], sums[1])


@pytest.mark.parametrize("count", [1, 2, 5, 33])
def test_rows_do_not_depend_on_their_number(count):
    x = torch.randn(40, 576, generator=torch.Generator().manual_seed(5))
    weight = torch.rand(576)
    ops = NumbaOps()
    whole, gated = ops.rms_norm(x, weight, 1e-5), ops.silu_mul(x)
    part = x[7 : 7 + count].contiguous()
    assert torch.equal(ops.rms_norm(part, weight, 1e-5), whole[7 : 7 + count])
    assert torch.equal(ops.silu_mul(part), gated[7 : 7 + count])


@pytest.mark.parametrize("first", [0, 16, 64])
@pytest.mark.parametrize("size", [1, 16, 32])
def test_gather(first, size):
    pool = make(2, 16, size)
    table = np.random.default_rng(2).permutation(400)[:200].astype(np.int32)
    for last in (first + 1, first + 31, first + 64):
        ours = NumbaOps().gather(pool, 0, table, first, last, 80)
        reference = TorchOps(batched=False).gather(pool, 0, table, first, last, 80)
        for mine, theirs in zip(ours, reference, strict=True):
            assert torch.equal(mine, theirs)
            assert bool((mine[:, last - first :] == 0).all())


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (9, 0.0), (70, 0.0), (0, 2.0)])
@pytest.mark.parametrize(("start", "end"), [(0, 5), (0, 130), (63, 65), (100, 190), (64, 128)])
def test_prefill_attention(canonical, window, softcap, start, end):
    pool = make(2, 16, 16)
    work = item(prompt(end, 1), start, end, list(range(30, 30 + -(-end // 16))), end)
    poison(pool, [work], 16)
    step = plan(Batch(batch_id=0, items=(work,)), 16, lambda rows: rows)
    q = torch.randn(end - start, 64, generator=torch.Generator().manual_seed(6))
    spec = AttentionSpec(scale=0.25, window=window, softcap=softcap)
    out = Attention(NumbaOps(), canonical).run(q, 64, step, pool, 0, spec)
    rows = pool.tensor[0, list(work.block_table)].permute(1, 2, 0, 3, 4).flatten(2, 3)
    keys, values = rows[:, :, :end].double().repeat_interleave(2, dim=1)
    query = q.double().view(-1, 4, 16).transpose(0, 1)
    scores = query @ keys.transpose(1, 2) * 0.25
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    position, key = torch.arange(start, end)[:, None], torch.arange(end)[None]
    hidden = key > position
    if window:
        hidden |= key <= position - window
    expected = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ values
    expected = expected.transpose(0, 1).flatten(1).float()
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
