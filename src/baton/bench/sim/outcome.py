"""What one run of a simulator told: ours in full, Dynamo's as far as it reports it."""

import statistics

import msgspec


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Of one process of ours."""

    num_requests: int
    num_completed: int
    loops_s: list[float]
    """Building, running and reading one simulation, for each run."""
    load_s: float
    """Reading the trace."""
    ready_s: float
    """Compiling, or loading machine code."""
    num_events: int
    num_rows: int
    mean_ttft_ms: float
    p99_ttft_ms: float
    mean_tpot_ms: float
    reused: float
    """Share of the prompts' tokens that was found in a cache."""
    peak_nbytes: int

    @property
    def loop_s(self) -> float:
        """Median over the runs."""
        return statistics.median(self.loops_s)

    @property
    def per_s(self) -> float:
        """Requests for each second of the loop."""
        return self.num_requests / self.loop_s

    @property
    def events_per_s(self) -> float:
        """Events of the loop."""
        return self.num_events / self.loop_s


class PeerOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Of one process of Dynamo's replay."""

    num_requests: int
    loop_s: float
    """By its own clock."""
    process_s: float
    mean_ttft_ms: float
    p99_ttft_ms: float
    mean_tpot_ms: float
    reused: float

    @property
    def per_s(self) -> float:
        """Requests for each second of its loop."""
        return self.num_requests / self.loop_s
