"""A workload as flat arrays, hash ids as dense integers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.workload.request import Workload


@dataclass(frozen=True, kw_only=True)
class FastWorkload:
    """Requests in order of arrival. Those with equal leading ids share a prefix."""

    arrival_us: NDArray[np.float64]
    num_prompt: NDArray[np.int64]
    num_output: NDArray[np.int64]
    """What the request will produce: no policy may read it."""
    hash_offsets: NDArray[np.int64]
    """Request i has the ids from entry i to entry i + 1; one entry more than requests."""
    hash_ids: NDArray[np.int64]
    """Each is one chained block: equal ids mean equal prefixes up to there."""
    tokens_per_hash: int = 0
    max_output: NDArray[np.int64] | None = None
    """The longest answer that each client asks for, which policies see and may reserve; None: all
    ask for as much as the longest answer there is."""
    source: str = ""

    def __len__(self) -> int:
        return len(self.arrival_us)

    def at_rate(self, factor: float) -> "FastWorkload":
        """The same requests, arriving so many times faster: common random numbers for a search."""
        if not factor > 0:
            raise ConfigError(f"rate factor {factor}: above 0")
        return FastWorkload(
            arrival_us=self.arrival_us / factor,
            num_prompt=self.num_prompt,
            num_output=self.num_output,
            hash_offsets=self.hash_offsets,
            hash_ids=self.hash_ids,
            tokens_per_hash=self.tokens_per_hash,
            max_output=self.max_output,
            source=f"{self.source}, {factor:g} times faster",
        )


def pack(workload: Workload) -> FastWorkload:
    """From requests as a trace has them; an answer has at least one token."""
    requests = workload.requests
    interned: dict[tuple[int, int], int] = {}
    ids: list[int] = []
    offsets = [0]
    for one in requests:
        # An id names its block; a prefix is the chain up to it, interned by (parent, id).
        parent = -1
        for hash_id in one.hash_ids:
            parent = interned.setdefault((parent, hash_id), len(interned))
            ids.append(parent)
        offsets.append(len(ids))
    return FastWorkload(
        arrival_us=np.array([one.arrival_us for one in requests], np.float64),
        num_prompt=np.array([max(1, one.num_prompt_tokens) for one in requests], np.int64),
        num_output=np.array([max(1, one.num_output_tokens) for one in requests], np.int64),
        hash_offsets=np.array(offsets, np.int64),
        hash_ids=np.array(ids, np.int64),
        tokens_per_hash=workload.tokens_per_hash,
        source=workload.source,
    )
