"""Proof that a plan fills its destination exactly: row by row, from the layouts alone."""

import numpy as np

from baton.core.remap.fragments import Fragments, fragments
from baton.core.remap.plan import Plan
from baton.core.remap.rows import Integers, Rows
from baton.errors import LocalProtocolError


def payload_nbytes(plan: Plan) -> int:
    """Bytes that the destination needs: each rank's heads and layers of every moved position."""
    to = plan.destination
    rows = sum(
        to.layers_of(rank).common(plan.layers).size * to.heads_of(rank).size
        for rank in range(to.num_ranks)
    )
    return rows * plan.moved.size * sum(to.shape.widths)


def check_cover(plan: Plan) -> None:
    """Raise unless every byte of every row that the destination needs is written exactly once, by
    the same row of a source rank that holds it, and no other byte is written."""
    runs = fragments(plan.copies)
    source = Rows(plan.source, plan.source_table)
    into = Rows(plan.destination, plan.destination_table)
    starts = into.at(runs.destination_rank, runs.destination_region, runs.destination_offset)
    origins = source.at(runs.source_rank, runs.source_region, runs.source_offset)
    _require(bool((starts[1:] >= starts[:-1] + runs.nbytes[:-1]).all()), "a byte is written twice")
    for rank in range(plan.destination.num_ranks):
        for plane in range(len(plan.destination.shape.widths)):
            _check_plane(plan, rank, plane, source, into, runs, starts, origins)
    moved, needed = int(runs.nbytes.sum()), payload_nbytes(plan)
    _require(moved == needed == plan.nbytes, f"{moved} bytes move, {needed} are needed")


def _check_plane(
    plan: Plan,
    rank: int,
    plane: int,
    source: Rows,
    into: Rows,
    runs: Fragments,
    starts: Integers,
    origins: Integers,
) -> None:
    """Every row of one plane of a destination rank lies within a run, and comes from itself."""
    layers, heads, positions = np.meshgrid(
        np.arange(*plan.destination.layers_of(rank).common(plan.layers)),
        np.arange(*plan.destination.heads_of(rank)),
        np.arange(*plan.moved),
        indexing="ij",
    )
    if not layers.size:
        return
    width = plan.destination.shape.widths[plane]
    rows = into.of(rank, plane, layers, heads, positions)
    run = np.searchsorted(starts, rows, side="right") - 1
    _require(bool((run >= 0).all()), "a row is not written")
    within = rows - starts[run]
    _require(bool((within + width <= runs.nbytes[run]).all()), "a row is not written, or in part")
    came, senders = origins[run] + within, runs.source_rank[run]
    for sender in np.unique(senders):
        mine = senders == sender
        held = source.of(int(sender), plane, layers[mine], heads[mine], positions[mine])
        _require(bool((held == came[mine]).all()), f"source rank {sender} sends another row")


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise LocalProtocolError(f"remap plan: {text}")
