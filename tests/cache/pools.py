"""Small pools, and prompts served from them as a worker does it."""

from collections.abc import Sequence
from typing import Any

from baton.cache.pool import MemPool
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.request import Request, SamplingParams

LAYOUT = KVLayout(num_layers=2, num_kv_heads=1, head_dim=2, block_size=2)
IDENTITY = ModelIdentity(model="toy", checkpoint_hash="c", tokenizer_hash="t")


def pool_of(num_blocks: int, **options: Any) -> MemPool:
    return MemPool(num_blocks, LAYOUT, IDENTITY, prefix_caching=True, **options)


def prompt(tokens: Sequence[int]) -> Request:
    return Request(
        request_id="r", sampling=SamplingParams(max_tokens=1), prompt_token_ids=tuple(tokens)
    )


def serve(memory: MemPool, request: Request) -> list[bytes]:
    """Match, compute the rest, insert, free; returns the names."""
    tokens = request.prompt_token_ids
    hashes = memory.hashes(request, tokens)
    table = memory.match(hashes, len(hashes))
    memory.count_prompt(len(hashes), len(table))
    assert memory.allocate(table, len(tokens))
    memory.insert(table, hashes, len(hashes))
    memory.free(table)
    return hashes
