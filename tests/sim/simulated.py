"""Trace files and deployments for tests of `baton simulate`, and what a cache should find."""

import json
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

BLOCK = 512


def write_trace(path: Path, *rows: tuple[int, int, int, Sequence[int]]) -> Path:
    """Mooncake's lines of (milliseconds, prompt, output, hash ids)."""
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    lines = [json.dumps(dict(zip(names, (*row[:3], list(row[3])), strict=True))) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def lru_hits(prompts: Sequence[Sequence[int]], num_blocks: int) -> int:
    """Blocks found by a plain LRU in which a prompt's last block is its oldest."""
    cache: OrderedDict[int, None] = OrderedDict()
    num_hits = 0
    for ids in prompts:
        known = next((n for n, one in enumerate(ids) if one not in cache), len(ids))
        num_hits += known
        for one in reversed(ids):
            cache[one] = None
            cache.move_to_end(one)
        while len(cache) > num_blocks:
            cache.popitem(last=False)
    return num_hits
