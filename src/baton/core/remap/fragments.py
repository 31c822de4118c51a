"""The contiguous runs of a plan as arrays, joined as far as they adjoin on both sides."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from baton.core.remap.copy import Copy

Integers = npt.NDArray[np.int64]


class Fragments(NamedTuple):
    """Run by run, ordered by destination rank, allocation and offset."""

    source_rank: Integers
    source_region: Integers
    source_offset: Integers
    destination_rank: Integers
    destination_region: Integers
    destination_offset: Integers
    nbytes: Integers


def run_offsets(offset: int, strides: Sequence[int], counts: Sequence[int]) -> Integers:
    """Where each run of a strided copy begins on one side."""
    offsets = np.full(1, offset, np.int64)
    for stride, count in zip(strides, counts, strict=True):
        offsets = (offsets[:, None] + stride * np.arange(count, dtype=np.int64)).ravel()
    return offsets


def fragments(copies: Sequence[Copy]) -> Fragments:
    """Every run of the copies. No two of the result adjoin on both sides between the same ranks
    and allocations: there is no plan of fewer runs with the same effect."""
    if not copies:
        return Fragments(*(np.empty(0, np.int64) for _ in Fragments._fields))
    repeats = np.array([copy.num_runs for copy in copies])
    columns = [
        np.repeat(np.array([getattr(copy, name) for copy in copies], np.int64), repeats)
        for name in ("source_rank", "source_region", "destination_rank", "destination_region")
    ]
    outs = [run_offsets(c.source_offset, c.source_strides, c.counts) for c in copies]
    ins = [run_offsets(c.destination_offset, c.destination_strides, c.counts) for c in copies]
    found = Fragments(
        source_rank=columns[0],
        source_region=columns[1],
        source_offset=np.concatenate(outs),
        destination_rank=columns[2],
        destination_region=columns[3],
        destination_offset=np.concatenate(ins),
        nbytes=np.repeat(np.array([copy.run_nbytes for copy in copies], np.int64), repeats),
    )
    return _joined(_ordered(found))


def _ordered(runs: Fragments) -> Fragments:
    order = np.lexsort((runs.destination_offset, runs.destination_region, runs.destination_rank))
    return Fragments(*(column[order] for column in runs))


def _joined(runs: Fragments) -> Fragments:
    """Runs in order, each with the ones that continue it on both sides."""
    starts = np.ones(len(runs.nbytes), bool)
    same = np.ones(len(runs.nbytes) - 1, bool)
    for column in (
        runs.source_rank,
        runs.source_region,
        runs.destination_rank,
        runs.destination_region,
    ):
        same &= column[1:] == column[:-1]
    for column in (runs.source_offset, runs.destination_offset):
        same &= column[1:] == column[:-1] + runs.nbytes[:-1]
    starts[1:] = ~same
    first = np.flatnonzero(starts)
    joined = Fragments(*(column[first] for column in runs))
    return joined._replace(nbytes=np.add.reduceat(runs.nbytes, first))
