"""What a policy answers: a route with its prices, or a refusal before any compute."""

import msgspec

from baton.core.ids import Direction


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A route: where the prompt runs and where it decodes; equal means colocated."""

    prefill: str
    decode: str


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """Copy the first `num_blocks` blocks of the prompt to the prefill worker before it starts."""

    owner: str
    num_blocks: int


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """A route that was not taken; `price` is in what the policy compares, mostly microseconds."""

    pair: Pair
    price: float


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A route, what it is expected to reuse, and what its two clocks are predicted to show."""

    pair: Pair
    fetch: Fetch | None = None
    prefill_reuse_tokens: int = 0
    """Rows that the prefill worker will not compute, those of a fetch included."""
    decode_reuse_tokens: int = 0
    """Rows that will not be sent to the decode worker."""
    ttft_us: float = 0.0
    tpot_us: float = 0.0
    price: float = 0.0
    """What the policy compared."""
    reason: str = ""
    direction: Direction | None = None
    """Who moves the bytes, where the policy says so."""
    alternatives: tuple[Alternative, ...] = ()


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """No route meets the clock that `code` names; the predictions are those of the best route."""

    code: str
    reason: str
    ttft_us: float = 0.0
    tpot_us: float = 0.0
    wait_us: float = 0.0
    """How long a queue has to shrink until the same question passes; 0: that is not known."""


Outcome = Decision | Rejection | None
"""None: no worker has room now, and the request waits."""


def alternatives_text(decision: Decision) -> str:
    """The routes not taken, in one line: prefill>decode=price."""
    return " ".join(
        f"{a.pair.prefill}>{a.pair.decode}={a.price:.0f}" for a in decision.alternatives
    )
