"""Capacity of prompt and token pools, dedicated and with mixed machines (specification 0x08G)."""

import math

import msgspec

from baton.core.ids import Role
from baton.errors import ConfigError


class PoolRates(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a second that one machine sustains: as a prompt machine, a token machine, or both.

    `mixed_per_s` is end to end, both phases of each request, under the prompt and output lengths
    that are expected: neither other rate says anything about it.
    """

    prompt_per_s: float
    token_per_s: float
    mixed_per_s: float

    def __post_init__(self) -> None:
        for name in ("prompt_per_s", "token_per_s", "mixed_per_s"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ConfigError(f"{name} = {value}: must be finite and not negative")


def static_capacity(num_prompt: int, num_token: int, rates: PoolRates) -> float:
    """Requests a second through two dedicated pools: the slower one decides."""
    _check_counts(num_prompt, num_token)
    return min(num_prompt * rates.prompt_per_s, num_token * rates.token_per_s)


def mixed_capacity(
    num_prompt: int,
    num_token: int,
    rates: PoolRates,
    num_borrowed: int,
    origin: Role = Role.PREFILL,
) -> float:
    """The same when some machines of one pool run both phases.

    Requests of a mixed machine execute both phases there, so its one rate relieves both pools, and
    its dedicated rate is gone: a borrowed machine is never counted twice.
    """
    _check_counts(num_prompt, num_token)
    lender = num_prompt if origin is Role.PREFILL else num_token
    if origin is Role.MIXED or not 0 <= num_borrowed <= lender:
        raise ConfigError(
            f"num_borrowed = {num_borrowed} of {lender} {origin} machines: from 0 to all of a pool "
            "of prefill or decode machines"
        )
    prompts = num_prompt - (num_borrowed if origin is Role.PREFILL else 0)
    tokens = num_token - (num_borrowed if origin is Role.DECODE else 0)
    mixed = num_borrowed * rates.mixed_per_s
    return min(prompts * rates.prompt_per_s + mixed, tokens * rates.token_per_s + mixed)


def best_borrowed(num_prompt: int, num_token: int, rates: PoolRates) -> tuple[Role, int, float]:
    """From which pool to borrow, how many, and the capacity; the fewest among equals."""
    choices = [
        (mixed_capacity(num_prompt, num_token, rates, num, origin), -num, origin)
        for origin, most in ((Role.PREFILL, num_prompt), (Role.DECODE, num_token))
        for num in range(most + 1)
    ]
    capacity, negative, origin = max(choices, key=lambda one: one[:2])
    return origin, -negative, capacity


def _check_counts(num_prompt: int, num_token: int) -> None:
    for name, num in (("num_prompt", num_prompt), ("num_token", num_token)):
        if num < 0:
            raise ConfigError(f"{name} = {num}: a pool has 0 machines or more")
