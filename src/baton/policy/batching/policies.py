"""The batch policies by name: one interface for the real worker and the simulated one."""

from collections.abc import Callable

import msgspec

from baton.policy.batching.chunked import sarathi_batch, sarathi_serve_batch, token_budget_batch
from baton.policy.batching.orca import orca_batch
from baton.policy.batching.priority import (
    decode_first_batch,
    phase_pure_batch,
    prefill_first_batch,
    whole_hybrid_batch,
)
from baton.policy.batching.static import static_batch
from baton.policy.batching.view import BatchLimits, QueueView, Rows


class BatchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows run next, a pure function of the queue, and what it demands of its host.

    A step always holds at least one row when any sequence has its blocks.
    """

    name: str
    select: Callable[[QueueView, BatchLimits], list[Rows]]
    reserves_whole_length: bool = False
    """Blocks for prompt and longest output are reserved before the first iteration."""
    releases_together: bool = False
    """A finished request is held back until its whole batch has finished."""


POLICIES: dict[str, BatchPolicy] = {
    policy.name: policy
    for policy in (
        BatchPolicy(
            name="static",
            select=static_batch,
            reserves_whole_length=True,
            releases_together=True,
        ),
        BatchPolicy(name="orca", select=orca_batch, reserves_whole_length=True),
        BatchPolicy(name="sarathi", select=sarathi_batch),
        BatchPolicy(name="sarathi_serve", select=sarathi_serve_batch),
        BatchPolicy(name="token_budget", select=token_budget_batch),
        BatchPolicy(name="prefill_first", select=prefill_first_batch),
        BatchPolicy(name="decode_first", select=decode_first_batch),
        BatchPolicy(name="phase_pure", select=phase_pure_batch),
        BatchPolicy(name="whole_hybrid", select=whole_hybrid_batch),
    )
}
