"""Checks of a loaded model: equal to plain transformers, and to itself in any batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from baton.core.layout import KVLayout
from baton.core.request import SamplingParams
from baton.core.work import Batch, WorkItem
from baton.engine.forward import Forward
from baton.engine.pool import Pool
from baton.engine.step import plan
from baton.errors import ModelRefused

NUM_TOKENS = 72
_NUM_PROMPT = 69
"""Odd on purpose: the prompt ends inside a grid block, and decode rows follow it."""
_SAMPLING = SamplingParams(max_tokens=1, temperature=0.0)


@dataclass(frozen=True)
class Reference:
    """Logits [tokens][vocabulary] of the plain transformers forward over `token_ids`."""

    token_ids: tuple[int, ...]
    logits: Tensor


def make_reference(model: Any, vocab_size: int) -> Reference:
    """Run `model` (eager attention, no cache) over fixed pseudo-random tokens."""
    token_ids = _token_ids(vocab_size)
    device = next(model.parameters()).device
    with torch.inference_mode():
        output = model(input_ids=torch.tensor([token_ids], device=device), use_cache=False)
    return Reference(token_ids, output.logits[0, _NUM_PROMPT - 1 :].float().cpu())


def _token_ids(vocab_size: int) -> tuple[int, ...]:
    random = np.random.Generator(np.random.Philox(11))
    return tuple(int(t) for t in random.integers(0, vocab_size, NUM_TOKENS))


Rows = Sequence[tuple[int, int]]
"""Row ranges of the test sequence, each run in its own step."""


def run_rows(
    forward: Forward, layout: KVLayout, token_ids: Sequence[int], ranges: Rows, companion: bool
) -> tuple[Pool, Tensor]:
    """Run `ranges` one after another in a fresh pool; return it and the logits from the prompt on.

    With `companion`, another sequence shares every step: its own prefill, then decode rows.
    """
    count = layout.num_blocks(len(token_ids))
    pool = Pool(layout, 2 * count + 1, forward.device)
    pool.tensor.fill_(float("nan"))
    table = tuple(range(2 * count, count, -1))
    other_table, other_ids = tuple(range(count)), tuple(reversed(token_ids))
    logits = []
    for number, (start, end) in enumerate(ranges):
        items = [_item("a", token_ids, start, end, table, _NUM_PROMPT)]
        if companion:
            rows = (0, 40) if number == 0 else (39 + number, 40 + number)
            items.insert(0, _item("b", other_ids, *rows, other_table, 40))
        step = plan(Batch(batch_id=number, items=tuple(items)), layout.block_size, forward.pad)
        rows_out = forward.run(step, pool)
        if end >= _NUM_PROMPT:
            logits.append(rows_out[-1].float().cpu())
    return pool, torch.stack(logits)


def _item(
    name: str, token_ids: Sequence[int], start: int, end: int, table: tuple[int, ...], prompt: int
) -> WorkItem:
    return WorkItem(
        request_id=name, generation=0, token_ids=tuple(token_ids[start:end]), start=start,
        num_prompt_tokens=prompt, block_table=table, sample=True, sampling=_SAMPLING,
    )  # fmt: skip


def _decoding() -> list[tuple[int, int]]:
    return [(p, p + 1) for p in range(_NUM_PROMPT, NUM_TOKENS)]


def warm(forward: Forward, layout: KVLayout) -> None:
    """Run a prefill row and a decode row, so that kernels are compiled before the first request."""
    pool = Pool(layout, layout.num_blocks(2), forward.device)
    work = _item("warm", (0, 0), 0, 2, tuple(range(pool.num_blocks)), 1)
    forward.run(plan(Batch(batch_id=0, items=(work,)), layout.block_size, forward.pad), pool)


def check_equal(
    forward: Forward, layout: KVLayout, reference: Reference, name: str, tolerance: float
) -> None:
    """Raise ModelRefused unless chunks and decode rows give the logits of the plain forward."""
    ranges = [(0, 37), (37, _NUM_PROMPT), *_decoding()]
    _, logits = run_rows(forward, layout, reference.token_ids, ranges, companion=True)
    spread = float(reference.logits.std())
    error = float((logits - reference.logits).abs().max())
    if not error <= tolerance * max(spread, 1e-3):
        raise ModelRefused(
            f"{name}: self-test failed: paged logits differ from transformers by {error:.3g} "
            f"(spread {spread:.3g}, tolerance {tolerance:g} of it)"
        )
    top = reference.logits.topk(2, dim=-1).values
    clear = (top[:, 0] - top[:, 1]) > 2 * error
    moved = (logits.argmax(-1) != reference.logits.argmax(-1)) & clear
    if bool(moved.any()):
        raise ModelRefused(f"{name}: self-test failed: a paged step picks another token")


def bits_differ(forward: Forward, layout: KVLayout, vocab_size: int) -> str:
    """Say which way of batching changes a bit of K/V or logits, or return ""."""
    token_ids = _token_ids(vocab_size)
    whole = [(0, _NUM_PROMPT), *_decoding()]
    ways = {
        "odd chunks and a one-token tail": ([(0, 37), (37, _NUM_PROMPT - 1),
                                             (_NUM_PROMPT - 1, _NUM_PROMPT), *_decoding()], False),
        "sharing steps with another sequence": ([(0, 64), (64, _NUM_PROMPT), *_decoding()], True),
        "replaying generated tokens in one step": ([(0, _NUM_PROMPT), (_NUM_PROMPT, NUM_TOKENS)],
                                                   False),
    }  # fmt: skip
    table = tuple(range(2 * layout.num_blocks(NUM_TOKENS), layout.num_blocks(NUM_TOKENS), -1))
    pool, logits = run_rows(forward, layout, token_ids, whole, companion=False)
    digest = pool.digest(table, NUM_TOKENS)
    for way, (ranges, companion) in ways.items():
        other, rows = run_rows(forward, layout, token_ids, ranges, companion)
        if other.digest(table, NUM_TOKENS) != digest:
            return f"{way} changes K/V bits"
        if not torch.equal(rows[-1], logits[-1]) or not torch.equal(rows[0], logits[0]):
            return f"{way} changes logits bits"
    return ""
