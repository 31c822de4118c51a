"""What a step's time is a sum of: each term is an amount of work, and its cost has a unit."""

from collections.abc import Iterator, Sequence

import msgspec

from baton.policy.phase_cost import PrefillRows, prefill_pairs

WORK_TERMS = (
    ("grid_pairs", "us per query-key pair of a prefill block, all heads and layers"),
    ("grid_blocks", "us per block of prefill queries, all layers"),
    ("gathered_tokens", "us per visible token whose K/V a prefill chunk gathers"),
    ("decode_tokens", "us per visible token whose K/V a decode row reads"),
    ("decode_rows", "us per decode row: sampling and its own attention call"),
    ("items", "us per sequence of the step"),
)
"""The terms behind the linear rows, in the order of `StepModel.work_us`."""


class StepGrid(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine rounds work up: both are facts of the loaded model, not of a fit."""

    min_rows: int = 1
    """Fewer rows are padded up to this many in every linear layer."""
    query_rows: int = 0
    """Prefill queries run as absolute blocks of so many rows, padded; 0: a chunk is one block."""
    row_knots: tuple[int, ...] = (0, 6, 8, 16, 32, 64, 128, 256)
    """Where the cost of one more row may change: the linears' kernels tile small batches."""

    def segments(self, num_rows: int) -> Iterator[int]:
        """Rows between each knot and the next that `num_rows` rows, padded, occupy."""
        padded = max(num_rows, self.min_rows)
        ends = (*self.row_knots[1:], padded)
        for start, end in zip(self.row_knots, ends, strict=True):
            yield max(0, min(padded, end) - start)


def prefill_blocks(chunk: PrefillRows, query_rows: int) -> tuple[int, int]:
    """Query-key pairs that the blocks of one chunk multiply, and how many blocks there are.

    Every block is `query_rows` queries by all keys up to its end, so its pairs exceed the causal
    ones; without a grid the chunk is one block over all that it sees.
    """
    start, end = chunk.num_visible, chunk.num_visible + chunk.num_rows
    if not chunk.num_rows:
        return 0, 0
    if not query_rows:
        return chunk.num_rows * end, 1
    first, last = start // query_rows, -(-end // query_rows)
    keys = query_rows * (last * (last + 1) - first * (first + 1)) // 2
    pairs = query_rows * keys
    assert pairs >= prefill_pairs(chunk.num_rows, chunk.num_visible)
    return pairs, last - first


def work_amounts(
    prefills: Sequence[PrefillRows], visible_lengths: Sequence[int], query_rows: int
) -> tuple[int, ...]:
    """How much of each of `WORK_TERMS` a step does."""
    pairs = num_blocks = gathered = 0
    for chunk in prefills:
        chunk_pairs, chunk_blocks = prefill_blocks(chunk, query_rows)
        pairs += chunk_pairs
        num_blocks += chunk_blocks
        gathered += chunk.num_visible + chunk.num_rows
    num_decodes = len(visible_lengths)
    num_items = len(prefills) + num_decodes
    return pairs, num_blocks, gathered, sum(visible_lengths), num_decodes, num_items
