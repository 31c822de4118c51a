"""What is asked of both sides: the cases of `baton compare`, as far as vLLM's API can say them.

A case of the same name asks the same there and here; `unasked` says which are missing, and why.
Seeded prompts of one round fit into one step together: vLLM 0.32.0 on CPUs ends its engine when
the prompt of a seeded request is computed in several ("CPU Generator does not use offset").
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from baton.bench.compare.builtin import HIT_BLOCKS
from baton.core.ids import Role

Body = dict[str, Any]

WORDS = (
    *("river", "mill", "stone", "bridge", "market", "lantern", "winter", "harvest", "ledger"),
    *("canal", "tower", "orchard", "signal", "anchor", "valley", "copper", "garden", "letter"),
)
_PLAIN: Body = {"max_tokens": 8, "temperature": 0, "return_token_ids": True}
_CHAT: Body = {
    **_PLAIN,
    "messages": [{"role": "user", "content": "Name a colour."}],
}
_STREAM: Body = {"stream": True, "stream_options": {"include_usage": True}}
_SAMPLED: Body = {"max_tokens": 24, "temperature": 0.9, "top_p": 0.9, "top_k": 40, "seed": 7}
_GROWTH_BLOCKS = 7
"""An answer of so many blocks; eight of them outgrow the tight pool that `shape` chooses."""


class VllmAsk(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a round."""

    body: Body
    follows: int | None = None
    """It goes on where the answer with this index of the round before has ended."""
    stop_from: int | None = None
    """Its stop string is a word of that answer of the round before."""
    give_up_after: int = 0
    """Its client leaves after so many tokens; 0: never."""
    salt: str = ""
    reused: tuple[int, int] | None = None
    """Bounds of cached_tokens: what one prefill server really had."""


class VllmRound(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that run together, unless the plain side asks them one by one."""

    asks: tuple[VllmAsk, ...]
    one_by_one: bool = False
    restart: Role | None = None
    """Before it the server of this role is killed."""


class VllmCase(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds of requests, one round after the other."""

    name: str
    about: str
    rounds: tuple[VllmRound, ...]
    is_split: bool = True
    """Its answers have to come by a handoff on a pair."""

    @property
    def restarts(self) -> bool:
        """It kills a server."""
        return any(one.restart is not None for one in self.rounds)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes that cases are cut by, in tokens."""

    block: int
    step: int
    """Prompt tokens of one step: longer prompts are computed in several."""
    is_tight: bool = False
    """The pool is so small that long answers outgrow it."""


class Prompts:
    """Bodies whose prompts have exact lengths in tokens, and are the same for the same seed."""

    def __init__(self, vocabulary: Sequence[int]) -> None:
        self._vocabulary = vocabulary

    def ids(self, count: int, seed: int) -> list[int]:
        """So many token ids; a shorter prompt of the same seed is the beginning of a longer one."""
        words = self._vocabulary
        return [words[(seed * 31 + i * (seed + 5) + i * i // 3) % len(words)] for i in range(count)]

    def plain(self, count: int, seed: int, /, **more: Any) -> Body:
        """A greedy completion of so many prompt tokens."""
        return {**_PLAIN, "prompt": self.ids(count, seed), **more}


def text_of(num_words: int, seed: int) -> str:
    """A text of so many words, the same for the same seed."""
    return " ".join(
        WORDS[(seed * 7 + i * (seed + 3) + i * i) % len(WORDS)] for i in range(num_words)
    )


def vllm_cases(shape: Shape, vocabulary: Sequence[int]) -> tuple[VllmCase, ...]:
    """Every case. `vocabulary` are token ids of ordinary words, to cut prompts to exact lengths."""
    prompts = Prompts(vocabulary)
    return (
        *_lengths(shape, prompts),
        *_hits(shape.block, prompts),
        *_sampling(shape.block, prompts),
        *_batches(shape, prompts),
        *_turns(shape.block, prompts),
        *_http(),
        *_restarts(shape.block, prompts),
    )


def unasked(shape: Shape) -> dict[str, str]:
    """Cases of `baton compare` that are not asked here, and why."""
    if shape.is_tight:
        return {}
    why = "needs a pool that answers outgrow; name model.max_model_len and let the servers start"
    return {"batch-growth": why}


def _rounds(*rounds: Sequence[VllmAsk | Body]) -> tuple[VllmRound, ...]:
    return tuple(
        VllmRound(asks=tuple(a if isinstance(a, VllmAsk) else VllmAsk(body=a) for a in asks))
        for asks in rounds
    )


def _lengths(shape: Shape, prompts: Prompts) -> list[VllmCase]:
    size, step = shape.block, shape.step
    lengths = {"one-token": 1}
    signs = ((-1, "-1"), (0, ""), (1, "+1"))
    lengths |= {f"blocks-{n}{s}": n * size + d for n in (1, 2, 7) for d, s in signs}
    lengths |= {f"step{s}": step + d for d, s in signs}
    lengths["steps-3"] = 3 * step + size // 2 + 1
    return [
        VllmCase(
            name=f"length-{name}",
            about=f"a prompt of {length} tokens, streamed and not",
            rounds=_rounds([prompts.plain(length, i)], [prompts.plain(length, 70 + i, **_STREAM)]),
        )
        for i, (name, length) in enumerate(lengths.items())
    ]


def _hits(size: int, prompts: Prompts) -> list[VllmCase]:
    """Warm the first blocks, then ask for all: with a tail, and ending on the block edge."""
    cases = []
    for tail, name in ((3, "tail"), (0, "edge")):
        for hit in range(HIT_BLOCKS + 1):
            length, seed = HIT_BLOCKS * size + tail, 90 + 10 * tail + hit
            cached = min(hit, (length - 1) // size) * size
            warm = {**prompts.plain(hit * size + 1, seed), "max_tokens": 2}
            full = VllmAsk(body=prompts.plain(length, seed), reused=(cached, cached))
            about = f"{length} tokens of which {hit * size} are warm"
            rounds = _rounds([warm], [full])
            cases.append(VllmCase(name=f"hit-{name}-{hit}", about=about, rounds=rounds))
    body, whole = prompts.plain(3 * size + 5, 21), 3 * size
    salted = [
        VllmAsk(body=body, reused=(0, 0)),
        VllmAsk(body=body, salt="other", reused=(0, 0)),
        VllmAsk(body={**body, **_STREAM}, reused=(whole, whole)),
    ]
    about = "a warm prompt under another cache salt, which must not hit, then under its own"
    salt = VllmCase(name="hit-salt", about=about, rounds=_rounds(*([one] for one in salted)))
    return [*cases, salt]


def _sampling(size: int, prompts: Prompts) -> list[VllmCase]:
    variants: dict[str, Body] = {
        "greedy": {"max_tokens": 24},
        "temperature": {"max_tokens": 24, "temperature": 1.3, "seed": 11},
        "top-p": {"max_tokens": 24, "temperature": 1.0, "top_p": 0.7, "seed": 12},
        "top-k": {"max_tokens": 24, "temperature": 1.0, "top_k": 5, "seed": 13},
        "all-limits": _SAMPLED,
        "min-tokens": {"max_tokens": 24, "min_tokens": 16, "temperature": 1.0, "seed": 14},
        "ignore-eos": {"max_tokens": 24, "temperature": 1.0, "seed": 15, "ignore_eos": True},
        "logprobs": {"max_tokens": 12, "temperature": 1.0, "seed": 16, "logprobs": 5},
    }
    return [
        VllmCase(
            name=f"sampling-{name}",
            about="how tokens are drawn",
            rounds=_rounds([prompts.plain(3 * size + 5, 130 + i, **more)]),
        )
        for i, (name, more) in enumerate(variants.items())
    ]


def _seeded(seed: int) -> Body:
    return {"max_tokens": 12, "temperature": 1.0, "seed": seed, "ignore_eos": True}


def _batches(shape: Shape, prompts: Prompts) -> list[VllmCase]:
    size, step = shape.block, shape.step
    mixed = (1, size, 2 * size + 1, 5, 3 * size - 1, 6 * size + 2, step // 4, 40)
    several = [prompts.plain(n, 140 + i, **_seeded(i)) for i, n in enumerate(mixed)]
    alone = [prompts.plain(n, 150 + i, **_seeded(i)) for i, n in enumerate(mixed[:6])]
    seeds = [prompts.plain(3 * size + 2, 160, **_seeded(seed)) for seed in range(4)]
    long = [prompts.plain(step + 9 * i + 1, 170 + i) for i in range(2)]
    (apart,) = _rounds(alone)
    cases = [
        VllmCase(
            name="batch-prompts",
            about="eight prompts of different lengths together",
            rounds=_rounds(several),
        ),
        VllmCase(
            name="batch-alone",
            about="six of them together at the pair, one by one at the plain server",
            rounds=(msgspec.structs.replace(apart, one_by_one=True),),
        ),
        VllmCase(
            name="batch-seeds", about="one prompt with four seeds together", rounds=_rounds(seeds)
        ),
        VllmCase(name="batch-long", about="two prompts longer than a step", rounds=_rounds(long)),
    ]
    if shape.is_tight:
        more = {"max_tokens": _GROWTH_BLOCKS * size, "ignore_eos": True}
        grown = [prompts.plain(4 * size - i % size, 180 + i, **more) for i in range(8)]
        about = "eight answers that outgrow a tight pool: decode preempts and computes again"
        cases.append(VllmCase(name="batch-growth", about=about, rounds=_rounds(grown)))
    return cases


def _turns(size: int, prompts: Prompts) -> list[VllmCase]:
    first = prompts.plain(2 * size + 3, 190, **{**_SAMPLED, "max_tokens": size + 4})
    following = [
        VllmAsk(body=prompts.plain(size // 2 + 1, 191 + i, **_SAMPLED), follows=0) for i in range(2)
    ]
    again = prompts.plain(4 * size + 3, 195, **_STREAM)
    given_up = VllmAsk(body={**again, "max_tokens": 64, "ignore_eos": True}, give_up_after=2)
    beside = prompts.plain(4 * size + 3, 196, **_STREAM)
    left = VllmAsk(body={**beside, "max_tokens": 64, "ignore_eos": True}, give_up_after=2)
    return [
        VllmCase(
            name="turns",
            about="three turns, each one extending the last answer",
            rounds=_rounds([first], *([one] for one in following)),
        ),
        VllmCase(
            name="cancel-repeat",
            about="given up in the middle, at once asked again",
            rounds=_rounds([given_up], [again]),
        ),
        VllmCase(
            name="cancel-beside",
            about="given up while another request with the same prompt goes on",
            rounds=_rounds([left, beside], [beside]),
        ),
    ]


def _http() -> list[VllmCase]:
    plain: Body = {**_PLAIN, "prompt": text_of(18, 1), "max_tokens": 24, "ignore_eos": True}
    sampled = {**_PLAIN, "prompt": text_of(18, 1), "max_tokens": 16, "temperature": 0.8, "seed": 5}
    texts = [text_of(12, 2), text_of(5, 3), "A", text_of(20, 4)]
    chats = [_CHAT, {**_CHAT, **_STREAM, "seed": 3, "temperature": 0.7}]
    chats.append({**_CHAT, "seed": 3, "temperature": 1.0, "logprobs": True, "top_logprobs": 3})
    asked: dict[str, tuple[str, tuple[VllmRound, ...]]] = {
        "stop": (
            "a stop string of the answer",
            _rounds([plain], [VllmAsk(body=plain, stop_from=0)]),
        ),
        "stop-stream": (
            "the same as a stream",
            _rounds([plain], [VllmAsk(body={**plain, **_STREAM}, stop_from=0)]),
        ),
        "stream": ("a stream with usage", _rounds([{**sampled, **_STREAM}])),
        "n": ("n=3 with a seed", _rounds([{**sampled, "n": 3}])),
        "prompts": (
            "four prompts, two answers each, streamed and not",
            _rounds(*([{**sampled, "prompt": texts, "n": 2, **more}] for more in ({}, _STREAM))),
        ),
        "logprobs": ("five alternatives per token", _rounds([{**sampled, "logprobs": 5}])),
        "limits": (
            "min_tokens, top_p, top_k",
            _rounds([{**sampled, "min_tokens": 9, "top_p": 0.8, "top_k": 30}]),
        ),
        "chat": ("a conversation, greedy and with a seed and logprobs", _rounds(chats)),
    }
    echo = VllmCase(
        name="echo",
        about="needs prompt and answer on one server, so it is served by one",
        rounds=_rounds([{**_PLAIN, "prompt": text_of(20, 5), "echo": True}]),
        is_split=False,
    )
    cases = [
        VllmCase(name=f"http-{name}", about=about, rounds=rounds)
        for name, (about, rounds) in asked.items()
    ]
    return [*cases, echo]


def _restarts(size: int, prompts: Prompts) -> list[VllmCase]:
    """The two sides warm at different lengths: one restarts, and is warmed again in part."""
    cases = []
    for role, seed in ((Role.PREFILL, 31), (Role.DECODE, 33)):
        whole = prompts.plain(6 * size + 7, seed)
        warm = [VllmAsk(body=prompts.plain(6 * size + 1, seed), salt=salt) for salt in "ab"]
        short = [VllmAsk(body=prompts.plain(2 * size + 1, seed), salt="b")]
        lengths = {"a": 0, "b": 2} if role is Role.PREFILL else {"a": 6, "b": 6}
        full = [
            VllmAsk(body=whole, salt=salt, reused=(kept * size, kept * size))
            for salt, kept in lengths.items()
        ]
        first, second, last = _rounds(warm, short, full)
        other = "decode" if role is Role.PREFILL else "prefill"
        cases.append(
            VllmCase(
                name=f"restart-{role}",
                about=f"{other} warm with 6 blocks, the restarted {role} server with 0 and 2",
                rounds=(first, msgspec.structs.replace(second, restart=role), last),
            )
        )
    return cases
