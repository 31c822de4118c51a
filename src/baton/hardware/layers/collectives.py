"""What GPUs of one instance exchange, on links with a bandwidth and a latency."""

import math

import msgspec

from baton.errors import ConfigError


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU's way to its peers, one direction."""

    bytes_per_us: float
    latency_us: float
    """Of a whole collective between two GPUs, as its smallest message shows it."""

    def __post_init__(self) -> None:
        if not self.bytes_per_us > 0:
            raise ConfigError(f"link: bytes_per_us is {self.bytes_per_us}; above 0")
        if not 0 <= self.latency_us < math.inf:
            raise ConfigError(f"link: latency_us is {self.latency_us}; 0 or more")


def all_reduce_us(link: Link, nbytes: float, num_gpus: int) -> float:
    """By ring: every GPU sends 2 (n - 1) / n of the data."""
    if num_gpus == 1:
        return 0.0
    share = 2.0 * (num_gpus - 1) / num_gpus
    return _latency_us(link, num_gpus) + share * nbytes / link.bytes_per_us


def all_gather_us(link: Link, nbytes: float, num_gpus: int) -> float:
    """`nbytes` of all together; a reduce-scatter costs the same."""
    if num_gpus == 1:
        return 0.0
    share = (num_gpus - 1) / num_gpus
    return _latency_us(link, num_gpus) + share * nbytes / link.bytes_per_us


def _latency_us(link: Link, num_gpus: int) -> float:
    return link.latency_us * math.ceil(math.log2(num_gpus))
