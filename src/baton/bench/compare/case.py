"""Cases as data: what is asked, in which order, and what must have happened for it to count."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from baton.core.ids import Role
from baton.core.layout import ModelInfo
from baton.core.request import SamplingParams

GREEDY = SamplingParams(max_tokens=10, temperature=0.0, ignore_eos=True)


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Its prompt is drawn from named streams, so equal names share a prefix."""

    num_tokens: int = 0
    shared: int = 0
    """How many leading tokens come from the case's own stream; the rest is unlike any other."""
    token_ids: tuple[int, ...] = ()
    """The prompt itself, when it is not to be drawn."""
    continues: int = -1
    """Index of an ask of the round before, whose prompt and answer come first."""
    sampling: SamplingParams = GREEDY
    salt: str = ""
    give_up_after: int = 0
    """Walk away after so many tokens; only these are compared."""
    visible: int = -1
    """Tokens that the decode worker must already hold when disaggregated; -1: any number."""
    cached: int = -1
    """Tokens that the prefill worker must reuse when disaggregated; -1: any number."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that run together, after the round before has ended."""

    asks: tuple[Ask, ...]
    restart: Role | None = None
    """End this worker of a disaggregated arm first: it comes back with an empty cache."""
    one_by_one: bool = False
    """Run them one after another when colocated, so that only one arm batches them."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request to the gateway."""

    path: str = "/v1/completions"
    body: Mapping[str, Any]
    stop_from: int = -1
    """Stop at a string that the answer to this earlier call contains."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds against the router, or calls to the gateway (one after another)."""

    name: str
    about: str
    rounds: tuple[Round, ...] = ()
    calls: tuple[Call, ...] = ()

    @property
    def restarts(self) -> bool:
        """True when a worker process is restarted on the way."""
        return any(one.restart is not None for one in self.rounds)

    @property
    def num_tokens(self) -> int:
        """Context that the case needs: its longest request, or a conversation of all rounds."""
        longest = [max(map(_room, one.asks)) for one in self.rounds]
        grows = any(ask.continues >= 0 for one in self.rounds for ask in one.asks)
        return sum(longest) if grows else max(longest, default=0)


def _room(ask: Ask) -> int:
    return max(ask.num_tokens, len(ask.token_ids)) + ask.sampling.max_tokens


def draw(name: str, count: int, info: ModelInfo) -> tuple[int, ...]:
    """Pseudo-random tokens that depend on `name` only; none of them ends a text."""
    source = random.Random(name)
    tokens: list[int] = []
    while len(tokens) < count:
        token = source.randrange(info.vocab_size)
        if token not in info.eos_token_ids:
            tokens.append(token)
    return tuple(tokens)


def prompt_of(
    case: str, label: str, ask: Ask, before: Sequence[tuple[int, ...]], info: ModelInfo
) -> tuple[int, ...]:
    """The prompt of an ask; `before` holds the conversations of the round before it."""
    lead = before[ask.continues] if ask.continues >= 0 else ()
    own = ask.num_tokens - ask.shared
    return (
        *lead,
        *ask.token_ids,
        *draw(case, ask.shared, info),
        *draw(f"{case}/{label}", max(0, own), info),
    )
