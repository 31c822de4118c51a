"""What a table leaves open about a split deployment, filled in as an operator would choose it."""

import math

import msgspec

from baton.hardware.operators.sharding import Sharding
from baton.planner.predict.case import Case, Pool

_SPREAD_TOKENS = 320_000
"""Tokens in the deployment from which decode workers have attention DP."""
_SPREAD_SEQUENCES = 256
"""The same for short contexts, of a decode worker as wide as a node."""
_WIDE = 12
"""Decode workers as wide as this spread experts, and attention with them."""
_LARGEST_BATCH = 128
"""Sequences that a decode worker of one tensor-parallel group is given before there is another."""
_BUSY = {"trtllm": 0.65, "sglang": 1.3, "vllm": 1.0}
"""Prefill ranks for each request that is in prefill by operator times alone."""


def is_whole_deployment(case: Case) -> bool:
    """Whether the table gives the sum of all GPUs, or none, in place of a worker's."""
    decode = case.decode
    if decode is None:
        return not _divides(case, case.prefill.sharding.tp) or (
            case.prefill.sharding.width > 16 and case.prefill.sharding.dp == 1
        )
    if decode.is_given:
        return False
    same = case.prefill.sharding == decode.sharding
    width = decode.sharding.width
    total = not _divides(case, decode.sharding.tp) or (same and width > 16)
    return total or (same and width == 1 and _smallest_width(case) > 1)


def _divides(case: Case, tp: int) -> bool:
    return case.model.num_heads % tp == 0


def _smallest_width(case: Case) -> int:
    """GPUs that hold the weights and leave a quarter for K/V."""
    room = 0.75 * case.system.memory_nbytes
    return 1 << max(0, math.ceil(math.log2(case.model.weight_nbytes / room)))


def completed(case: Case, prefill_share: float) -> Case:
    """With every pool given. `prefill_share` is the prefill work of one request over its decode
    time: what decides how many prefill workers keep up.
    """
    if is_whole_deployment(case):
        case = _divided(case)
    if case.decode is None or case.decode.is_given:
        return case
    decode = _decode_pool(case)
    running = case.concurrency * prefill_share / (1.0 + prefill_share)
    prefill = _prefill_pool(case, running)
    return msgspec.structs.replace(case, prefill=prefill, decode=decode)


def _divided(case: Case) -> Case:
    """Workers of the least width that holds the weights; decode as wide as its load asks for."""
    width = max(4, _smallest_width(case))
    moe = case.model.num_experts > 0
    small = Sharding(tp=width, moe_tp=width if moe else 1)
    wide = width
    if case.concurrency > 256:
        wide = min(32, max(width, case.prefill.sharding.width // 2, 8))
    decode = Sharding(tp=wide, ep=wide if moe else 1)
    return msgspec.structs.replace(
        case,
        prefill=Pool(sharding=small, num_workers=1, is_given=False),
        decode=Pool(sharding=decode, num_workers=1, is_given=False),
    )


def _decode_pool(case: Case) -> Pool:
    assert case.decode is not None
    sharding = case.decode.sharding
    width = sharding.width
    if not case.model.num_experts:
        workers = max(1, round(case.concurrency / (2 * _LARGEST_BATCH)))
        return Pool(sharding=sharding, num_workers=workers, is_given=False)
    tokens = case.concurrency * (case.num_prompt + case.num_output / 2)
    is_many = case.concurrency > _SPREAD_SEQUENCES * (2 if case.backend == "trtllm" else 1)
    if width >= _WIDE or (is_many if case.num_prompt < 4096 else tokens > 4 * _SPREAD_TOKENS):
        spread = Sharding(tp=1, dp=width, moe_tp=1, ep=width, pp=sharding.pp)
        return Pool(sharding=spread, num_workers=1, is_given=False)
    workers = max(_factor(case), -(-case.concurrency // _LARGEST_BATCH))
    return Pool(sharding=sharding, num_workers=min(workers, 9), is_given=False)


def _factor(case: Case) -> int:
    """Workers that share the load evenly. Loads are a power of two for each worker, so that an odd
    part tells their number; else four, where the rack or a loop of TensorRT-LLM has room for them.
    """
    load = case.concurrency
    for divisor in (5, 9, 7, 3):
        if load % divisor == 0 and (divisor < 9 or load >= 36):
            return divisor
    return 4 if case.system.domain_gpus > 8 or (case.backend == "trtllm" and load >= 32) else 1


def _prefill_pool(case: Case, running: float) -> Pool:
    sharding = case.prefill.sharding
    width = sharding.width
    is_busy = case.concurrency >= 8 * width
    if case.model.num_experts and (is_busy or (sharding.ep > 1 and case.backend == "trtllm")):
        sharding = Sharding(tp=1, dp=width, moe_tp=1, ep=width, pp=sharding.pp)
    workers = max(1, round(_BUSY[case.backend] * running / sharding.dp))
    return Pool(sharding=sharding, num_workers=min(workers, 16), is_given=False)
