"""What a fast simulation found, one entry of each array for each request of the workload."""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class End(IntEnum):
    """How a request ended."""

    OPEN = 0
    """Not at all: the simulation was stopped before."""
    COMPLETED = 1
    REJECTED = 2
    """Before any compute."""
    TOO_LARGE = 3
    """No worker can ever hold it."""
    FAILED = 4


@dataclass(frozen=True, kw_only=True)
class Workers:
    """One entry for each worker."""

    names: tuple[str, ...]
    busy_us: Floats
    num_steps: Ints
    num_extrapolated: Ints
    """Steps beyond what their curves were measured for."""
    num_rows: Ints
    peak_tokens: Ints
    """Most K/V tokens that were held at once."""


@dataclass(frozen=True, kw_only=True)
class FastResult:
    """Times in microseconds from the start; NaN where something never happened."""

    arrival_us: Floats
    num_prompt: Ints
    num_output: Ints
    """Tokens that were produced."""
    end: NDArray[np.int8]
    first_us: Floats
    """First token at the client."""
    last_us: Floats
    """Last token at the client."""
    noticed_us: Floats = field(default_factory=lambda: np.zeros(0))
    """Its router saw it: its arrival and the gateway's time, later where workers look ahead."""
    prefill_start_us: Floats
    prefill_end_us: Floats
    moved_us: Floats
    """The last byte of its K/V is at the decode worker; NaN for a colocated one."""
    num_cached: Ints
    """Prompt rows that were not computed."""
    num_moved: Ints
    """Prompt rows whose K/V was moved."""
    num_preempted: Ints
    prefill_worker: Ints
    decode_worker: Ints
    """-1 where there is none."""
    workers: Workers
    gap_edges_us: Floats
    """Edges of the histogram of times between consecutive tokens."""
    gap_counts: Ints
    duration_us: float
    """Until the last end."""
    num_events: int
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def is_completed(self) -> NDArray[np.bool_]:
        """Which requests have their whole answer."""
        return np.equal(self.end, int(End.COMPLETED))

    @property
    def ttft_us(self) -> Floats:
        """Arrival to first token, queueing included; NaN without one."""
        return self.first_us - self.arrival_us

    @property
    def tpot_us(self) -> Floats:
        """Mean time of each token after the first (DistServe, vLLM); NaN for fewer than two."""
        with np.errstate(invalid="ignore", divide="ignore"):
            each: Floats = (self.last_us - self.first_us) / (self.num_output - 1)
        return np.where(self.num_output >= 2, each, np.nan)

    @property
    def e2e_us(self) -> Floats:
        """Arrival to last token."""
        return self.last_us - self.arrival_us
