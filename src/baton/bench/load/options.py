"""How a run of load is made, apart from what is asked and of whom."""

import msgspec

from baton.bench.load.target import Abilities
from baton.errors import ConfigError

SEED_LIMIT = 2**53
"""Samplers get seeds that grow from it by request, and a server takes 64 bits."""


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One open-loop run."""

    seed: int = 0
    """Of prompts, samplers and of the choice of requests to cancel."""
    ignore_eos: bool = True
    max_concurrency: int | None = None
    """A bound on requests in flight; latency still counts from the schedule."""
    request_timeout_s: float = 600.0
    """From sending to the end of the stream."""
    cancellation_rate: float = 0.0
    """Share of the requests, from 0 to 1, that leave after `cancellation_delay_s`."""
    cancellation_delay_s: float = 0.0
    abilities: Abilities | None = None
    """What is known of the server; without it, it is asked before the run."""
    extra_body: dict[str, object] = {}
    request_id_prefix: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < SEED_LIMIT:
            raise ConfigError(f"--seed {self.seed}: from 0 to {SEED_LIMIT - 1}")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise ConfigError(
                f"--max-concurrency {self.max_concurrency}: at least 1, or leave it out for none"
            )
        if not self.request_timeout_s > 0:
            raise ConfigError(f"--request-timeout {self.request_timeout_s}: more than 0 seconds")
        if not 0 <= self.cancellation_rate <= 1:
            raise ConfigError(f"cancellation rate = {self.cancellation_rate}: a share from 0 to 1")
        if not self.cancellation_delay_s >= 0:
            raise ConfigError(
                f"--request-cancellation-delay {self.cancellation_delay_s}: 0 seconds or more"
            )
