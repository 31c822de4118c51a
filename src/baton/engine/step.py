"""One batch as index arrays: computed once per step, used by every layer."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from baton.core.work import Batch, WorkItem
from baton.errors import LocalProtocolError

GRID = 64
"""Prefill attention always works on query rows `[64 j, 64 j + 64)` of a sequence."""

OnLayer = Callable[[int], None]


@dataclass(frozen=True)
class Segment:
    """Contiguous prefill rows of one sequence: batch rows `row ..`, positions `start .. end`."""

    row: int
    start: int
    end: int
    table: NDArray[np.int32]


@dataclass(frozen=True)
class Step:
    """Rows of a batch, flattened; `num_padded >= num_rows` rows run through the linears.

    Decode row j of the step is batch row `decode_rows[j]`, at position `decode_positions[j]`, with
    its blocks at `tables[table_starts[j]:]`.
    """

    token_ids: torch.Tensor
    positions: NDArray[np.int64]
    blocks: NDArray[np.int32]
    slots: NDArray[np.int32]
    num_rows: int
    num_padded: int
    segments: tuple[Segment, ...]
    decode_rows: NDArray[np.int64]
    decode_positions: NDArray[np.int64]
    tables: NDArray[np.int32]
    table_starts: NDArray[np.int64]
    sample_rows: torch.Tensor
    on_layer: OnLayer | None = None
    cache: dict[str, torch.Tensor] = field(default_factory=dict)
    """Tensors that the torch path derives once per step."""


def check_item(
    item: WorkItem, *, block_size: int, num_blocks: int, vocab_size: int, max_len: int
) -> None:
    """Raise LocalProtocolError when `item` names rows, tokens or blocks that do not exist."""
    name = f"item {item.request_id!r}"
    if not item.token_ids or item.start < 0 or item.num_prompt_tokens < 1:
        raise LocalProtocolError(f"{name}: no rows, or a negative start, or no prompt")
    if item.end > max_len:
        raise LocalProtocolError(f"{name}: position {item.end - 1} is past the limit {max_len}")
    if len(item.block_table) * block_size < item.end:
        raise LocalProtocolError(
            f"{name}: {len(item.block_table)} blocks of {block_size} do not hold {item.end} rows"
        )
    if not 0 <= min(item.token_ids) <= max(item.token_ids) < vocab_size:
        raise LocalProtocolError(f"{name}: a token id is outside 0..{vocab_size - 1}")
    if not 0 <= min(item.block_table) <= max(item.block_table) < num_blocks:
        raise LocalProtocolError(f"{name}: a block id is outside 0..{num_blocks - 1}")


def plan(
    batch: Batch, block_size: int, pad: Callable[[int], int], on_layer: OnLayer | None = None
) -> Step:
    """Flatten `batch`; rows keep item order, and each item's prefill rows precede its others."""
    num_rows = batch.num_rows
    num_padded = pad(num_rows)
    token_ids = np.zeros(num_padded, np.int64)
    positions = np.zeros(num_padded, np.int64)
    blocks, slots = np.zeros(num_rows, np.int32), np.zeros(num_rows, np.int32)
    segments: list[Segment] = []
    decode_rows: list[int] = []
    tables: list[NDArray[np.int32]] = []
    table_starts: list[int] = []
    sample_rows: list[int] = []
    row = table_start = 0
    for item in batch.items:
        count = len(item.token_ids)
        table = np.array(item.block_table, np.int32)
        here = np.arange(item.start, item.end)
        span = slice(row, row + count)
        token_ids[span], positions[span] = item.token_ids, here
        blocks[span], slots[span] = table[here // block_size], here % block_size
        prefill_end = min(item.end, item.num_prompt_tokens)
        if item.start < prefill_end:
            segments.append(Segment(row, item.start, prefill_end, table))
        first_decode = max(item.start, item.num_prompt_tokens)
        if first_decode < item.end:
            tables.append(table)
            decode_rows.extend(range(row + first_decode - item.start, row + count))
            table_starts.extend([table_start] * (item.end - first_decode))
            table_start += len(table)
        if item.sample:
            sample_rows.append(row + count - 1)
        row += count
    rows = np.array(decode_rows, np.int64)
    return Step(
        token_ids=torch.from_numpy(token_ids),
        positions=positions,
        blocks=blocks,
        slots=slots,
        num_rows=num_rows,
        num_padded=num_padded,
        segments=tuple(segments),
        decode_rows=rows,
        decode_positions=positions[rows],
        tables=np.concatenate(tables) if tables else np.zeros(0, np.int32),
        table_starts=np.array(table_starts, np.int64),
        sample_rows=torch.tensor(sample_rows, dtype=torch.long),
        on_layer=on_layer,
    )
