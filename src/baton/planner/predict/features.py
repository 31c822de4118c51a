"""Every case as numbers: operator times where it operates, and the shape of its closed loop."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from baton.errors import ConfigError
from baton.hardware.operators.columns import Floats
from baton.hardware.operators.precision import find_precision
from baton.hardware.operators.sharding import Sharding
from baton.planner.predict.case import Case
from baton.planner.predict.impute import completed
from baton.planner.predict.operating import (
    CHUNK_TOKENS,
    TERMS,
    TermsCache,
    prompt_terms,
    step_terms,
)

_USABLE = {"vllm": 0.93, "sglang": 0.9, "trtllm": 0.95}
"""Share of memory that engines fill when they are tuned for throughput."""
_OTHER_NBYTES = 3e9
_MS = 1e-3
_TUPLES = ("extrapolated", "sources", "cases")


@dataclass(frozen=True, kw_only=True)
class Features:
    """One entry for each case; times in milliseconds, terms in `operating.TERMS` order."""

    decode: Floats
    """A decode step of one rank."""
    prompt: Floats
    """One prompt alone on a prefill rank."""
    queued: Floats
    """One prompt of a step that is full of them."""
    mixed: Floats
    """What one prompt adds to steps that decode as well; of a split deployment, nothing."""
    is_split: Floats
    batch: Floats
    """Sequences of one decode rank, were no one waiting."""
    room: Floats
    """Sequences whose K/V fits one decode rank."""
    ranks: Floats
    """Decode ranks over all workers."""
    servers: Floats
    """Prefill ranks over all workers."""
    dp: Floats
    """Ranks of one decode worker."""
    num_prompt: Floats
    num_output: Floats
    concurrency: Floats
    is_given: Floats
    extrapolated: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]
    cases: tuple[Case, ...]


def features_of(
    cases: Sequence[Case],
    cache: TermsCache,
    mean_share: Sequence[float],
    tick: Callable[[], None] = lambda: None,
) -> Features:
    """`mean_share` is the mean of the lengths over the longest, which the table names.

    Raises ConfigError for a case that cannot be.
    """
    rows = []
    for one in each_of(cases, cache, mean_share, tick):
        if isinstance(one, ConfigError):
            raise one
        rows.append(one)
    return gathered(rows)


Columns = dict[str, Any]
"""Of one case, by the names of `Features`."""


def each_of(
    cases: Sequence[Case],
    cache: TermsCache,
    mean_share: Sequence[float],
    tick: Callable[[], None] = lambda: None,
) -> list[Columns | ConfigError]:
    """The same case by case, with the reason in place of one that cannot be."""
    known: dict[tuple[object, ...], Columns | ConfigError] = {}
    rows = []
    for case, share in zip(cases, mean_share, strict=True):
        # Tables repeat deployments; systems hold dictionaries and cannot be keys themselves.
        others = [getattr(case, name) for name in case.__struct_fields__ if name != "system"]
        key = (*others, case.system.name, share)
        if key not in known:
            try:
                known[key] = _one(case, cache, share)
            except ConfigError as error:
                known[key] = error
        rows.append(known[key])
        tick()
    return rows


def gathered(rows: Sequence[Columns]) -> Features:
    """Columns of several cases."""
    columns: dict[str, Any] = {}
    for one in fields(Features):
        values = [row[one.name] for row in rows]
        columns[one.name] = tuple(values) if one.name in _TUPLES else np.array(values, np.float64)
    return Features(**columns)


def select(features: Features, places: np.ndarray) -> Features:
    """Some of the cases."""
    columns: dict[str, Any] = {}
    for one in fields(Features):
        values = getattr(features, one.name)
        is_tuple = one.name in _TUPLES
        columns[one.name] = tuple(values[i] for i in places) if is_tuple else values[places]
    return Features(**columns)


def _one(case: Case, cache: TermsCache, share: float) -> dict[str, Any]:
    num_prompt = max(1.0, case.num_prompt * share)
    num_output = max(2.0, case.num_output * share)
    whole = case
    case = _complete(case, cache, num_prompt, num_output)
    prefill_pool = case.prefill
    decode_pool = case.decode or case.prefill
    for pool in (prefill_pool, decode_pool):
        if pool.is_given:
            _check_fits(case, pool.sharding)
    prefill = cache.terms(case, prefill_pool.sharding)
    decode = cache.terms(case, decode_pool.sharding)
    ranks = decode_pool.num_workers * decode_pool.sharding.dp
    batch = max(1.0, case.concurrency / ranks)
    room = max(1.0, kv_room_tokens(case, decode_pool.sharding) / (num_prompt + num_output / 2))
    context, held = num_prompt + num_output / 2, min(batch, room)
    step = step_terms(decode, 0.0, 0.0, 0.0, held, context)
    prompt = prompt_terms(prefill, num_prompt, 0.0, 1.0)
    mixed = np.zeros(len(TERMS))
    if case.decode is None:
        num_chunks = math.ceil(num_prompt / CHUNK_TOKENS)
        mixed = prompt_terms(decode, num_prompt, held, context) - num_chunks * step
    together = max(1, int(CHUNK_TOKENS // num_prompt))
    queued = step_terms(prefill, num_prompt, 0.0, together, 0.0, 1.0) / together
    lacking = set(prefill.extrapolated) | set(decode.extrapolated)
    if not prefill_pool.is_given or not decode_pool.is_given:
        lacking.add("workers of each pool are not given: chosen by load")
    return {
        "cases": whole,
        "decode": step * _unit(),
        "prompt": prompt * _unit(),
        "queued": (queued if together > 1 else prompt) * _unit(),
        "mixed": np.maximum(mixed, 0.0) * _unit(),
        "is_split": float(case.decode is not None),
        "batch": batch,
        "room": room,
        "ranks": ranks,
        "servers": prefill_pool.num_workers * prefill_pool.sharding.dp,
        "dp": decode_pool.sharding.dp,
        "num_prompt": num_prompt,
        "num_output": num_output,
        "concurrency": case.concurrency,
        "is_given": float(prefill_pool.is_given and decode_pool.is_given),
        "extrapolated": tuple(sorted(lacking)),
        "sources": decode.source,
    }


def _unit() -> Floats:
    """Microseconds to milliseconds; the count of layers stays."""
    scale = np.full(len(TERMS), _MS)
    scale[-1] = 1.0
    return scale


def _complete(case: Case, cache: TermsCache, num_prompt: float, num_output: float) -> Case:
    """Fill in what is not given, by the work of one prompt against that of its decode steps."""
    first = completed(case, 0.0)
    if first == case:
        return case
    prefill, decode = first.prefill, first.decode or first.prefill
    prompt = prompt_terms(cache.terms(first, prefill.sharding), num_prompt, 0.0, 1.0)[:-1].sum()
    batch = max(1.0, first.concurrency / (decode.num_workers * decode.sharding.dp))
    terms = cache.terms(first, decode.sharding)
    step = step_terms(terms, 0.0, 0.0, 0.0, batch, num_prompt + num_output / 2)[:-1].sum()
    return completed(case, float(prompt / (step * num_output)))


def _check_fits(case: Case, sharding: Sharding) -> None:
    """Refuse weights that are larger than the memory; engines get by with little beside them."""
    held, memory = weight_nbytes(case, sharding), case.system.memory_nbytes
    if held > memory:
        raise ConfigError(
            f"{case.model.name} does not fit: with {sharding} a GPU holds {held / 1e9:.0f} GB of "
            f"weights, {case.system.name} has {memory / 1e9:.0f} GB; use more GPUs or a smaller "
            "precision"
        )


def weight_nbytes(case: Case, sharding: Sharding) -> float:
    """Of one GPU."""
    model, quantisation = case.model, case.quantisation
    dense = find_precision(quantisation.gemm).weight_nbytes
    expert = find_precision(quantisation.moe).weight_nbytes
    held = (
        model.dense_parameters * dense / sharding.tp + 2 * model.embedding_parameters / sharding.tp
    )
    held += model.all_expert_parameters * expert / (sharding.moe_tp * sharding.ep)
    return held / sharding.pp


def kv_room_tokens(case: Case, sharding: Sharding) -> float:
    """Tokens that one rank holds beside its weights."""
    model, quantisation = case.model, case.quantisation
    held = weight_nbytes(case, sharding)
    split = 1 if model.latent_dim else min(sharding.tp, model.num_kv_heads)
    scale = quantisation.kv_nbytes / model.kv_nbytes_per_scalar
    token = max(1.0, model.token_nbytes * scale / split / sharding.pp)
    free = case.system.memory_nbytes * _USABLE[case.backend] - held - _OTHER_NBYTES
    return max(1.0, free / token)
