"""What is asked of both sides: block edges, cache hits, several outputs, usage, restarts."""

from collections.abc import Sequence
from typing import Any

import msgspec

from baton.core.ids import Role

Body = dict[str, Any]

WORDS = (
    *("river", "mill", "stone", "bridge", "market", "lantern", "winter", "harvest", "ledger"),
    *("canal", "tower", "orchard", "signal", "anchor", "valley", "copper", "garden", "letter"),
)
_PLAIN: Body = {"max_tokens": 8, "temperature": 0, "return_token_ids": True}
_CHAT: Body = {
    **_PLAIN,
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
}
_STREAM: Body = {"stream": True, "stream_options": {"include_usage": True}}


class VllmCase(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds of requests; those of one round run together."""

    name: str
    about: str
    rounds: tuple[tuple[Body, ...], ...]
    is_split: bool = True
    """Its answers have to come by a handoff on a pair."""
    restart: Role | None = None
    """Before the second round the server of this role is killed."""
    reused: tuple[int, int] | None = None
    """Bounds of cached_tokens in the last round: what the prefill server really had."""


def text_of(num_words: int, seed: int) -> str:
    """A text of so many words, the same for the same seed."""
    return " ".join(
        WORDS[(seed * 7 + i * (seed + 3) + i * i) % len(WORDS)] for i in range(num_words)
    )


class _Prompts:
    """Bodies whose prompts have exact lengths in tokens, and are the same for the same seed."""

    def __init__(self, vocabulary: Sequence[int]) -> None:
        self._vocabulary = vocabulary

    def ids(self, count: int, seed: int) -> list[int]:
        words = self._vocabulary
        return [words[(seed * 31 + i * (seed + 5) + i * i // 3) % len(words)] for i in range(count)]

    def plain(self, count: int, seed: int, **more: Any) -> Body:
        return {**_PLAIN, "prompt": self.ids(count, seed), **more}


def vllm_cases(block_size: int, vocabulary: Sequence[int]) -> tuple[VllmCase, ...]:
    """Every case. `vocabulary` are token ids of ordinary words, to cut prompts to exact lengths."""
    prompts = _Prompts(vocabulary)
    return (
        *_lengths(block_size, prompts),
        *_caching(block_size, prompts),
        *_SHAPES,
        VllmCase(
            name="together",
            about="six requests at once",
            rounds=(tuple(prompts.plain(40 + 17 * i, 50 + i, **_STREAM) for i in range(6)),),
        ),
        *_restarts(prompts),
    )


def _lengths(size: int, prompts: _Prompts) -> list[VllmCase]:
    lengths = (1, 2, size - 1, size, size + 1, 2 * size, 3 * size + 1, 9 * size + 5)
    return [
        VllmCase(
            name=f"length-{length}",
            about=f"a prompt of {length} tokens, streamed and not",
            rounds=((prompts.plain(length, i),), (prompts.plain(length, 40 + i, **_STREAM),)),
        )
        for i, length in enumerate(lengths)
    ]


def _caching(size: int, prompts: _Prompts) -> list[VllmCase]:
    again = prompts.plain(4 * size + 3, 21)
    long = prompts.ids(5 * size, 11)
    return [
        VllmCase(
            name="cached",
            about="the same prompt again: the prefill server has its whole blocks",
            rounds=((again,), ({**again, **_STREAM},)),
            reused=(4 * size, 4 * size),
        ),
        VllmCase(
            name="extended",
            about="a prompt that begins as one before",
            rounds=(({**_PLAIN, "prompt": long[: 3 * size]},), ({**_PLAIN, "prompt": long},)),
            reused=(2 * size, 3 * size),
        ),
        VllmCase(
            name="fresh",
            about="nothing is reused, and usage says so",
            rounds=((prompts.plain(3 * size + 7, 23),),),
            reused=(0, 0),
        ),
    ]


_SHAPES = (
    VllmCase(
        name="n",
        about="several prompts, and several outputs with seeds",
        rounds=(
            (
                {**_PLAIN, "prompt": [text_of(30, 1), text_of(45, 2)], **_STREAM},
                {**_PLAIN, "prompt": text_of(50, 3), "n": 3, "temperature": 0.7, "seed": 5},
            ),
        ),
    ),
    VllmCase(
        name="chat",
        about="the chat endpoint, streamed and not, with a stop string",
        rounds=(({**_CHAT, "stop": ["France"]}, {**_CHAT, **_STREAM}),),
    ),
    VllmCase(
        name="logprobs",
        about="log probabilities of both endpoints",
        rounds=(
            (
                {**_PLAIN, "prompt": text_of(60, 4), "logprobs": 2},
                {**_CHAT, "logprobs": True, "top_logprobs": 2, **_STREAM},
            ),
        ),
    ),
    VllmCase(
        name="echo",
        about="needs prompt and answer on one server, so it is served by one",
        rounds=(({**_PLAIN, "prompt": text_of(20, 5), "echo": True},),),
        is_split=False,
    ),
)


def _restarts(prompts: _Prompts) -> list[VllmCase]:
    return [
        VllmCase(
            name=f"restart-{role}",
            about=f"the {role} server is killed; its next life hands over again",
            rounds=(
                (prompts.plain(70, seed),),
                (prompts.plain(70, seed), prompts.plain(90, seed + 1, **_STREAM)),
            ),
            restart=role,
        )
        for role, seed in ((Role.PREFILL, 31), (Role.DECODE, 33))
    ]
