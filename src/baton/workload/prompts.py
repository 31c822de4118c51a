"""Token ids for requests that have no text; those with equal leading hash ids share a prefix."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.workload.request import Workload, WorkloadRequest

SHARED, PRIVATE = 0, 1
"""What a stream of tokens is for; keeps the two kinds of streams apart."""


def prompt_tokens(
    request: WorkloadRequest,
    *,
    vocab_size: int,
    tokens_per_hash: int,
    seed: int,
    exclude: frozenset[int] = frozenset(),
    index: int = 0,
) -> tuple[int, ...]:
    """The prompt as token ids, the same ones whenever the arguments are the same.

    Each hash id gives one block of tokens, whatever request it stands in; what no hash id covers
    belongs to this request alone. `index`, its place in the workload, tells it from requests that
    are otherwise equal. `exclude` are ids that a prompt must not hold, such as the end of text.
    """
    if request.hash_ids and tokens_per_hash < 1:
        raise ConfigError(
            f"tokens_per_hash = {tokens_per_hash} for a request with hash ids; "
            "give the tokens that one of them stands for"
        )
    allowed = _allowed(vocab_size, exclude)
    wanted = request.num_prompt_tokens
    parts = [
        _tokens(allowed, tokens_per_hash, (seed, SHARED, hash_id))
        for hash_id in request.hash_ids[: -(-wanted // tokens_per_hash) if tokens_per_hash else 0]
    ]
    rest = wanted - sum(map(len, parts))
    if rest > 0:
        key = (seed, PRIVATE, index, request.arrival_us, wanted, request.num_output_tokens)
        parts.append(_tokens(allowed, rest, key))
    tokens: list[int] = np.concatenate(parts)[:wanted].tolist()
    return tuple(tokens)


def workload_prompts(
    workload: Workload, *, vocab_size: int, seed: int, exclude: frozenset[int] = frozenset()
) -> Iterator[tuple[int, ...]]:
    """The prompts of all requests in their order."""
    for index, request in enumerate(workload.requests):
        yield prompt_tokens(
            request,
            vocab_size=vocab_size,
            tokens_per_hash=workload.tokens_per_hash,
            seed=seed,
            exclude=exclude,
            index=index,
        )


@lru_cache(maxsize=8)
def _allowed(vocab_size: int, exclude: frozenset[int]) -> NDArray[np.int64]:
    if vocab_size < 1:
        raise ConfigError(f"vocab_size = {vocab_size}: a model has at least 1 token")
    allowed = np.array([one for one in range(vocab_size) if one not in exclude], dtype=np.int64)
    if not len(allowed):
        raise ConfigError(f"all {vocab_size} tokens are excluded; leave some for the prompts")
    return allowed


def _tokens(allowed: NDArray[np.int64], num: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
    drawn: NDArray[np.int64] = allowed[rng.integers(0, len(allowed), size=num)]
    return drawn
