"""K/V memory as a value: rows of a worker's blocks, layer after layer, as nested tuples."""

import numpy as np

from baton.core.work import Batch, WorkItem
from baton.sim.arithmetic import checksum, draw, next_row

GARBAGE = -1

Rows = tuple[tuple[int, ...], ...]
"""One tuple of row values per (layer, block), layer-major."""


class Geometry:
    """Where a row of a worker is, and what the arithmetic engine does to it."""

    def __init__(self, num_layers: int, num_blocks: int, block_size: int) -> None:
        self.num_layers = num_layers
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.worthless = (GARBAGE,) * block_size
        self.empty: Rows = (self.worthless,) * (num_layers * num_blocks)

    def cell(self, layer: int, block: int) -> int:
        """Index of one block of one layer."""
        return layer * self.num_blocks + block

    def read(self, rows: Rows, layer: int, table: tuple[int, ...], position: int) -> int:
        """One row through a block table."""
        block = table[position // self.block_size]
        return rows[self.cell(layer, block)][position % self.block_size]

    def read_all(self, rows: Rows, table: tuple[int, ...], num_tokens: int) -> list[list[int]]:
        """The first rows of a sequence, per layer."""
        return [
            [self.read(rows, layer, table, position) for position in range(num_tokens)]
            for layer in range(self.num_layers)
        ]

    def compute(self, rows: Rows, batch: Batch, layers: range) -> Rows:
        """Compute these layers of a batch, each row from the row before it as it is read."""
        cells = list(rows)
        for item in batch.items:
            for layer in layers:
                self._compute_item(cells, item, layer)
        return tuple(cells)

    def _compute_item(self, cells: list[tuple[int, ...]], item: WorkItem, layer: int) -> None:
        for position, token_id in enumerate(item.token_ids, start=item.start):
            block, slot = divmod(position, self.block_size)
            before = 0
            if position:
                last, last_slot = divmod(position - 1, self.block_size)
                before = cells[self.cell(layer, item.block_table[last])][last_slot]
            cell = self.cell(layer, item.block_table[block])
            values = list(cells[cell])
            values[slot] = next_row(layer, position, token_id, before)
            cells[cell] = tuple(values)

    def draw(self, rows: Rows, item: WorkItem) -> int:
        """The token after the last row of an item, from every row before it."""
        found = np.array(self.read_all(rows, item.block_table, item.end), np.int64)
        return draw(found, item.sampling.seed, item.end)

    def chunk_cells(self, layers: range, blocks: tuple[int, ...]) -> list[int]:
        """The cells of a chunk in the order in which its bytes are."""
        return [self.cell(layer, block) for layer in layers for block in blocks]

    def take(self, rows: Rows, layers: range, blocks: tuple[int, ...]) -> Rows:
        """A copy of a chunk."""
        return tuple(rows[cell] for cell in self.chunk_cells(layers, blocks))

    def land(self, rows: Rows, layers: range, blocks: tuple[int, ...], data: Rows) -> Rows:
        """The memory after a chunk was written to it."""
        cells = list(rows)
        for cell, values in zip(self.chunk_cells(layers, blocks), data, strict=True):
            cells[cell] = values
        return tuple(cells)

    def scrub(self, rows: Rows, blocks: tuple[int, ...]) -> Rows:
        """Blocks that hold nothing by the pool's own account: what is left there is garbage."""
        cells = list(rows)
        for layer in range(self.num_layers):
            for block in blocks:
                cells[self.cell(layer, block)] = self.worthless
        return tuple(cells)


def sum_of(data: Rows) -> int:
    """Checksum of a chunk."""
    return checksum(np.array(data, np.int64))
