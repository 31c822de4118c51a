"""Draws tokens. The draw for position p uses (seed, p) only, so any worker continues a request."""

from collections.abc import Sequence

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor

from baton.core.request import SamplingParams, TopLogprob
from baton.core.work import Sampled, WorkItem


def sample(items: Sequence[WorkItem], logits: Tensor, eos: Sequence[int]) -> tuple[Sampled, ...]:
    """Draw one token for each item from its row of `logits` [items][vocabulary]."""
    if not items:
        return ()
    top = logits.max(dim=-1).values
    if not bool(torch.isfinite(top).all()):
        names = [i.request_id for i, ok in zip(items, torch.isfinite(top), strict=True) if not ok]
        raise ArithmeticError(f"the logits of {', '.join(names)} are not finite")
    if all(_is_greedy(item, eos) for item in items):
        tokens = logits.argmax(dim=-1).tolist()
        return tuple(
            Sampled(request_id=item.request_id, generation=item.generation, token_id=token)
            for item, token in zip(items, tokens, strict=True)
        )
    rows = logits.float().cpu().numpy()
    return tuple(_sample_one(item, row, eos) for item, row in zip(items, rows, strict=True))


def _banned(item: WorkItem, eos: Sequence[int]) -> list[int]:
    """Tokens that may not end the output yet."""
    sampling = item.sampling
    if item.end - item.num_prompt_tokens >= sampling.min_tokens:
        return []
    return [*eos, *sampling.stop_token_ids]


def _is_greedy(item: WorkItem, eos: Sequence[int]) -> bool:
    sampling = item.sampling
    plain = sampling.temperature == 0 and sampling.num_logprobs < 0 and not item.verify
    return plain and not _banned(item, eos)


def _sample_one(item: WorkItem, row: NDArray[np.float32], eos: Sequence[int]) -> Sampled:
    allowed = row
    banned = [token for token in _banned(item, eos) if 0 <= token < len(row)]
    if banned:
        allowed = row.copy()
        allowed[banned] = -np.inf
    token = draw(allowed, item.sampling, item.end)
    logprob: float | None = None
    top: tuple[TopLogprob, ...] = ()
    if item.sampling.num_logprobs >= 0:
        logprob, top = _logprobs(row, token, item.sampling.num_logprobs)
    return Sampled(
        request_id=item.request_id,
        generation=item.generation,
        token_id=token,
        logprob=logprob,
        top_logprobs=top,
        logits_digest=logits_digest(row) if item.verify else "",
    )


def logits_digest(row: NDArray[np.float32]) -> str:
    """Digest of one row's float32 logits."""
    return str(xxhash.xxh3_128_hexdigest(np.ascontiguousarray(row, np.float32).data))


def uniform(seed: int, position: int) -> float:
    """The uniform number in [0, 1) that belongs to (seed, position)."""
    key = (seed % (1 << 64)) | (position << 64)
    return float(np.random.Generator(np.random.Philox(key=key)).random())


def draw(logits: NDArray[np.float32], sampling: SamplingParams, position: int) -> int:
    """Token at `position` by temperature, top-k, top-p and the inverse of the distribution."""
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    scaled = logits.astype(np.float64) / sampling.temperature
    scaled = np.exp(scaled - scaled.max())
    fraction = uniform(sampling.seed, position)
    if sampling.top_k <= 0 and sampling.top_p >= 1.0:
        return _invert(np.cumsum(scaled), fraction)
    order = _most_likely(scaled, sampling.top_k, sampling.top_p)
    return int(order[_invert(np.cumsum(scaled[order]), fraction)])


def _invert(cumulative: NDArray[np.float64], fraction: float) -> int:
    """First index whose cumulative weight exceeds `fraction` of the total."""
    index = int(np.searchsorted(cumulative, fraction * cumulative[-1], side="right"))
    # Rounding may reach the total itself; the last index with weight is meant then.
    return min(index, int(np.searchsorted(cumulative, cumulative[-1])))


def _most_likely(weights: NDArray[np.float64], top_k: int, top_p: float) -> NDArray[np.int64]:
    """Token ids that top-k and then top-p keep, most likely first; ties break by token id."""
    count = top_k if 0 < top_k < len(weights) else len(weights)
    total = float(weights.sum())
    # Try the tokens above a falling floor first: sorting a whole vocabulary takes milliseconds.
    for floor in (1e-3, 1e-6, 0.0):
        ids = np.flatnonzero(weights >= floor)
        order = ids[np.argsort(-weights[ids], kind="stable")][:count]
        cumulative = np.cumsum(weights[order])
        mass = total if count == len(weights) else float(cumulative[-1])
        if len(order) == count or (count == len(weights) and cumulative[-1] >= top_p * total):
            break
    if top_p >= 1.0:
        return order
    # The shortest prefix whose probability reaches top_p, at least one token.
    return order[: int(np.searchsorted(cumulative, top_p * mass)) + 1]


def _logprobs(
    row: NDArray[np.float32], token: int, count: int
) -> tuple[float, tuple[TopLogprob, ...]]:
    """Log-probability of `token` and of the `count` most likely, of the unmodified logits."""
    logprobs = torch.log_softmax(torch.from_numpy(row), dim=-1)
    top: tuple[TopLogprob, ...] = ()
    if count:
        values, ids = torch.topk(logprobs, min(count, len(row)))
        pairs = zip(ids.tolist(), values.tolist(), strict=True)
        top = tuple(TopLogprob(token_id=i, logprob=v) for i, v in pairs)
    return float(logprobs[token]), top
