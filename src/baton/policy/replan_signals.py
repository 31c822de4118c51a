"""What a controller of two pools is told each interval, and the bounds within which it may act."""

import math

import msgspec

from baton.errors import ConfigError


class PoolSignals(msgspec.Struct, frozen=True, kw_only=True):
    """One pool now. Workers that start or drain take no requests, and are paid for all the same."""

    ready: int
    starting: int = 0
    draining: int = 0
    waiting: int = 0
    """Requests that wait here: for prefill, or with their K/V for a place to decode."""
    waiting_us: float = 0.0
    """Their work for one worker, where it is known: prompts that are not computed yet."""
    active: int = 0
    """Requests that are served."""

    @property
    def coming(self) -> int:
        """Workers that take requests now or soon."""
        return self.ready + self.starting

    @property
    def paid(self) -> int:
        """Every worker that holds GPUs."""
        return self.ready + self.starting + self.draining


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """One interval. Means are over what the host has seen lately, not over this interval alone."""

    now_us: float
    interval_us: float
    num_arrivals: int
    arrived_us: float
    """Prefill work that arrived, for one worker; rows that caches hold are no work."""
    prompt_cv2: float
    """Squared coefficient of variation of one prompt's work."""
    prompt_tail_us: float
    """One prompt's work at the attainment's quantile."""
    mean_output: float
    """Tokens of an answer."""
    mean_context: float
    """Tokens of K/V that a decoding request holds."""
    prefill: PoolSignals
    decode: PoolSignals
    ttft_met: float | None = None
    """Share of the interval's requests that met their target; None without one to judge."""
    tpot_met: float | None = None


class WorkerRates(msgspec.Struct, frozen=True, kw_only=True):
    """What workers can do, by profile or measurement; the same for every worker of a role."""

    decode_step_us: float
    """Of a batch without sequences: weights, and what every step costs."""
    decode_sequence_us: float
    """Further time of each sequence of the mean context."""
    decode_tokens: int
    """K/V that one decode worker holds."""
    decode_max_requests: int
    handoff_us: float = 0.0
    """From the end of prefill to the first token, beside queues."""
    prefill_gpus: int = 1
    decode_gpus: int = 1


class ReplanRules(msgspec.Struct, frozen=True, kw_only=True):
    """Targets, budget, and how quickly the controller changes its mind."""

    ttft_us: float
    tpot_us: float
    attainment: float = 0.9
    max_gpus: int
    start_us: float
    """A new worker takes requests after so long."""
    flip_us: float
    """A drained worker serves the other phase after so long: the weights are there already."""
    short_us: float = 30e6
    """Demand is the larger of its means over a short and a long time."""
    long_us: float = 180e6
    shrink_share: float = 0.7
    """Hysteresis: a smaller pool must be predicted to stay within this share of its targets."""
    patience_us: float = 120e6
    """... for so long without interruption before a worker is drained."""
    cooldown_us: float = 60e6
    """Between two actions on one pool; growing again is never delayed by it."""
    drain_us: float = 10e6
    """A backlog beyond the target is to be gone so long after help has come."""

    def __post_init__(self) -> None:
        for name in ("ttft_us", "tpot_us", "short_us", "long_us", "drain_us"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"replan: {name} is {value}; a number above 0")
        for name in ("start_us", "flip_us", "patience_us", "cooldown_us"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"replan: {name} is {value}; 0 or more")
        for name in ("attainment", "shrink_share"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"replan: {name} is {getattr(self, name)}; between 0 and 1")
        if self.max_gpus < 2:
            raise ConfigError(f"replan: max_gpus is {self.max_gpus}; two pools need 2 or more")
