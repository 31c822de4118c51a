"""Checks of parameters that several generators share."""

import math

from baton.errors import ConfigError
from baton.workload.request import Workload

MAX_RATE = 1e6
"""Requests a second; above it, arrivals a microsecond apart cannot be told from each other."""


def check_num(num: int) -> None:
    """A number of requests."""
    if num < 1:
        raise ConfigError(f"number of requests = {num}: at least 1 is needed")


def check_rate(rate: float) -> None:
    """A rate in requests a second."""
    if not math.isfinite(rate) or not 0 < rate <= MAX_RATE:
        raise ConfigError(
            f"rate = {rate}: requests a second are more than 0 and at most {MAX_RATE:.0f}; "
            "use all_at_once for no waiting at all"
        )


def check_positive(value: float, name: str) -> None:
    """A finite number above 0."""
    if not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{name} = {value}: must be a finite number above 0")


def check_not_empty(workload: Workload) -> None:
    """A workload to draw from or to change."""
    if not workload.requests:
        raise ConfigError(f"workload {workload.name!r} holds no requests")
