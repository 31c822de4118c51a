"""What the clients of a chaos run ask: short prompts for load, long ones to hit handoffs with."""

from collections.abc import Sequence

from baton.bench.vllm.cases import Body, Prompts, text_of

SHORT = (0, 1, 2, 3, 4, 5)
LONG = (6, 7)
_LONG_TOKENS = (1300, 1450)
_ROOM = 64
"""For the answer, below the longest context."""


def chaos_bodies(vocabulary: Sequence[int], max_model_len: int) -> list[Body]:
    """The bodies that `SHORT` and `LONG` number."""
    prompts = Prompts(vocabulary)
    limit = (max_model_len or max(_LONG_TOKENS) + _ROOM) - _ROOM
    long = [prompts.ids(min(limit, count), 80 + count) for count in _LONG_TOKENS]
    texts: list[object] = [text_of(30 + 25 * number, 60 + number) for number in SHORT]
    return [_body(number, prompt) for number, prompt in enumerate([*texts, *long])]


def _body(number: int, prompt: object) -> Body:
    body: Body = {
        "prompt": prompt,
        "max_tokens": 6 + number,
        "temperature": 0,
        "return_token_ids": True,
        "ignore_eos": True,
    }
    if number % 2:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body
