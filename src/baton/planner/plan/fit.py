"""Which of a trace's requests the largest instance can hold at all."""

import msgspec
import numpy as np

from baton.planner.placement.space import Space
from baton.sim.fast.workload import FastWorkload


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A request that no instance holds is a miss in every plan."""

    num_requests: int
    num_long: int
    """Prompt and output together are longer than any K/V memory."""
    most_tokens: int
    """That fit."""
    longest: int
    instance: str
    """The largest one's cut."""

    @property
    def share(self) -> float:
        """Of the requests that fit."""
        return 1 - self.num_long / self.num_requests

    @property
    def remedy(self) -> str:
        """What to do."""
        return (
            f"give memory for {self.longest} tokens (more --gpus for a wider instance, a larger "
            "GPU, a higher --utilization or --kv-tokens), or leave them out of the trace"
        )

    def __str__(self) -> str:
        return (
            f"{self.num_long} of {self.num_requests} requests, up to {self.longest} tokens, are "
            f"longer than the {self.most_tokens} tokens that the largest instance "
            f"({self.instance}) holds"
        )


def fit_of(workload: FastWorkload, space: Space) -> Fit:
    """Of whole requests: the last token needs the room of all others."""
    largest = max(space.candidates, key=lambda one: one.kv_tokens)
    lengths = workload.num_prompt + np.maximum(workload.num_output, 1)
    return Fit(
        num_requests=len(lengths),
        num_long=int((lengths > largest.kv_tokens).sum()),
        most_tokens=largest.kv_tokens,
        longest=int(lengths.max()),
        instance=str(largest.parallel),
    )
