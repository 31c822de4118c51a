"""Prompts of replayed requests: no time depends on a token, only on which prefixes are equal."""

from collections.abc import Callable
from functools import lru_cache
from itertools import chain

from baton.workload.prompts import prompt_tokens
from baton.workload.request import Workload

Prompts = Callable[[int], tuple[int, ...]]
"""The prompt of the request with this index."""
_SHARED, _PRIVATE = 0, 1


def label_prompts(workload: Workload, vocab_size: int, seed: int) -> Prompts:
    """Each block begins with its hash id, written in tokens, and goes on with zeros.

    Two blocks are equal exactly where two drawn ones would be, and making one costs next to
    nothing. Where ids do not fit into their blocks, tokens are drawn instead.
    """
    size = workload.tokens_per_hash
    largest = max((max(one.hash_ids, default=0) for one in workload.requests), default=0)
    largest = max(largest, len(workload.requests))
    if size and len(_digits(largest, vocab_size)) + 1 > size:
        return _drawn(workload, vocab_size, seed)

    @lru_cache(maxsize=4096)
    def block(kind: int, label: int, num_tokens: int) -> tuple[int, ...]:
        head = (kind, *_digits(label, vocab_size))
        return (*head, *((0,) * (num_tokens - len(head))))[:num_tokens]

    def prompt(index: int) -> tuple[int, ...]:
        request = workload.requests[index]
        wanted = request.num_prompt_tokens
        ids = request.hash_ids[: -(-wanted // size) if size else 0]
        blocks = [block(_SHARED, one, size) for one in ids]
        rest = wanted - size * len(ids)
        if rest > 0:
            # A rest shorter than its label is cut to it, and is no whole block that could be found.
            blocks.append(block(_PRIVATE, index, rest))
        return tuple(chain.from_iterable(blocks))[:wanted]

    return prompt


def _digits(number: int, base: int) -> tuple[int, ...]:
    """Little end first, at least one; labels of different lengths differ by their end."""
    digits = [number % base]
    while number := number // base:
        digits.append(number % base)
    return tuple(digits)


def _drawn(workload: Workload, vocab_size: int, seed: int) -> Prompts:
    def prompt(index: int) -> tuple[int, ...]:
        return prompt_tokens(
            workload.requests[index],
            vocab_size=vocab_size,
            tokens_per_hash=workload.tokens_per_hash,
            seed=seed,
            index=index,
        )

    return prompt
