"""Why a remap is fast or slow: how many messages and pieces, and how small the smallest is."""

import msgspec
import numpy as np

from baton.core.remap.fragments import fragments
from baton.core.remap.plan import Plan


class PlanSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a plan."""

    nbytes: int
    num_messages: int
    """Pairs of a source and a destination rank that talk to each other."""
    num_copies: int
    """Strided copies: what a kernel or a scatter-gather list with strides takes as one."""
    num_fragments: int
    """Contiguous runs: what a network read or write without strides takes as one."""
    smallest_run_nbytes: int
    largest_run_nbytes: int
    source_nbytes: tuple[int, ...]
    """Sent by each source rank; 0 for a replica that nobody asked."""
    num_padding_tokens: int
    """Slots behind the last position in the destination's last block."""


def summarize(plan: Plan) -> PlanSummary:
    """Count the messages, copies and fragments of a plan."""
    runs = fragments(plan.copies)
    sent = np.bincount(runs.source_rank, weights=runs.nbytes, minlength=plan.source.num_ranks)
    pairs = {(copy.source_rank, copy.destination_rank) for copy in plan.copies}
    sizes = runs.nbytes if len(runs.nbytes) else np.zeros(1, np.int64)
    return PlanSummary(
        nbytes=plan.nbytes,
        num_messages=len(pairs),
        num_copies=len(plan.copies),
        num_fragments=len(runs.nbytes),
        smallest_run_nbytes=int(sizes.min()),
        largest_run_nbytes=int(sizes.max()),
        source_nbytes=tuple(int(nbytes) for nbytes in sent),
        num_padding_tokens=plan.padding.size,
    )
