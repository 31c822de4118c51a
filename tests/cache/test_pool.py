"""MemPool: prefix pins, growth that takes all or nothing, and names only for full blocks."""

import pytest

from baton.cache.pool import MemPool
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.request import Request, SamplingParams

LAYOUT = KVLayout(num_layers=2, num_kv_heads=1, head_dim=2, block_size=4)
IDENTITY = ModelIdentity(model="toy", checkpoint_hash="c", tokenizer_hash="t")


def memory(num_blocks: int = 8, *, prefix_caching: bool = True) -> MemPool:
    return MemPool(num_blocks, LAYOUT, IDENTITY, prefix_caching=prefix_caching)


def request(tokens, **changes) -> Request:
    fields = {"request_id": "r", "sampling": SamplingParams(max_tokens=1), **changes}
    return Request(prompt_token_ids=tuple(tokens), **fields)


def publish(kv: MemPool, tokens, **changes) -> list[bytes]:
    """Compute, name and release a prompt; returns the names of its full blocks."""
    asked = request(tokens, **changes)
    hashes = kv.hashes(asked, asked.prompt_token_ids)
    table: list[int] = []
    assert kv.allocate(table, len(tokens))
    kv.insert(table, hashes, len(hashes))
    kv.free(table)
    return hashes


def test_a_published_prefix_is_pinned_in_token_order():
    kv = memory()
    hashes = publish(kv, range(12))
    assert kv.match(hashes, 99) == [0, 1, 2]
    assert kv.pool.num_used == 3 and kv.pool.num_cached == 0


def test_at_most_the_asked_blocks_are_pinned():
    kv = memory()
    hashes = publish(kv, range(12))
    assert kv.match(hashes, 2) == [0, 1]
    assert kv.match(hashes, 0) == []


def test_no_hole_is_torn_into_a_prefix():
    kv = memory(3)
    hashes = publish(kv, range(12))
    kv.pool.acquire(2)
    assert kv.pool.num_cached == 2 and kv.pool.num_available == 0
    assert kv.pool.allocate(1) is None, "the block in use needs those before it"
    kv.pool.release(2)
    assert kv.pool.allocate(1) == [2]
    assert kv.match(hashes, 99) == [0, 1]


@pytest.mark.parametrize("changes", [{"tenant_id": "other"}, {"cache_salt": "other"}])
def test_no_tenant_or_salt_sees_anothers_prefix(changes):
    kv = memory()
    publish(kv, range(12))
    asked = request(range(12), **changes)
    assert kv.match(kv.hashes(asked, asked.prompt_token_ids), 99) == []


def test_growth_takes_all_or_nothing():
    kv = memory(4)
    table: list[int] = []
    assert kv.allocate(table, 5) and table == [0, 1]
    assert kv.allocate(table, 8) and table == [0, 1], "the last block has room"
    assert not kv.allocate(table, 17)
    assert table == [0, 1] and kv.pool.num_free == 2
    assert kv.allocate(table, 16) and table == [0, 1, 2, 3]


def test_a_partial_tail_is_never_named():
    kv = memory()
    publish(kv, range(10))
    assert (kv.pool.num_cached, kv.pool.num_free) == (2, 6)


def test_only_the_first_count_blocks_are_named():
    kv = memory()
    asked = request(range(12))
    hashes = kv.hashes(asked, asked.prompt_token_ids)
    table: list[int] = []
    kv.allocate(table, 12)
    kv.insert(table, hashes, 1)
    kv.free(table)
    assert kv.pool.num_cached == 1
    assert kv.match(hashes, 99) == [0]


def test_suffixes_are_evicted_before_the_prefix_they_need():
    kv = memory(3)
    hashes = publish(kv, range(12))
    assert kv.pool.allocate(1) == [2], "the tail went first"
    assert kv.match(hashes, 99) == [0, 1]


def test_two_readers_share_the_same_blocks():
    kv = memory()
    hashes = publish(kv, range(8))
    one, other = kv.match(hashes, 9), kv.match(hashes, 9)
    assert one == other == [0, 1]
    kv.free(one)
    assert kv.pool.num_used == 2
    kv.free(other)
    assert kv.pool.num_cached == 2


def test_without_prefix_caching_nothing_is_named_or_found():
    kv = memory(prefix_caching=False)
    hashes = publish(kv, range(8))
    assert kv.match(hashes, 9) == []
    assert kv.pool.num_free == 8
