"""The two clocks of a route from rates, reuse and load: TTFT by its terms, and TPOT (0x08E, 0x09I).

ttft = queue(P) + fetch + prefill(P, compute set) + exposed transfer(transfer set) + admission(D)
tpot = decode step of D with this request in its batch
"""

from collections.abc import Sequence

from baton.core.ids import Schedule
from baton.core.snapshot import Rates
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.survey import Survey

UNREACHABLE = float("inf")


def prefill_us(rates: Rates, num_tokens: int, cached: int) -> float:
    """Rows that are not cached, and the causal pairs of those rows with everything before them."""
    rows = num_tokens - cached
    pairs = rows * cached + rows * (rows + 1) / 2
    return rates.prefill_us_per_token * rows + rates.prefill_us_per_pair * pairs


def transfer_us(nbytes: float, bytes_per_us: float, overhead_us: float = 0.0) -> float:
    """Time on the link; nothing is free to move once a rate is known."""
    if not nbytes or not bytes_per_us:
        return 0.0
    return nbytes / bytes_per_us + overhead_us


def exposed_us(compute_us: float, moved_us: float, num_layers: int, schedule: Schedule) -> float:
    """What is left of a transfer after the last layer is ready.

    By layer, on one transfer engine, either the last layer's share is left or, where the link is
    the slower one, everything but what hid behind the layers before: the recurrence of 0x07 for
    layers that are alike.
    """
    if schedule is not Schedule.LAYER:
        return moved_us
    return max(moved_us / num_layers, moved_us - compute_us * (num_layers - 1) / num_layers)


def prefill_reuse_blocks(question: RouteQuestion, worker: WorkerLoad) -> int:
    """Leading blocks that this worker need not compute."""
    return min(question.depths.get(worker.worker_id, 0), question.max_cached_blocks)


def decode_reuse_tokens(question: RouteQuestion, worker: WorkerLoad) -> int:
    """Leading rows in this worker's own memory: they are pinned there and not sent."""
    depth = question.memory_depths.get(worker.worker_id, 0)
    return min(depth * question.block_size, question.num_tokens)


Terms = tuple[list[float], list[float]]
"""For each of some workers: what comes before its prefill begins to compute, and the prefill."""


def held_blocks(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> list[int]:
    """Leading blocks at each worker, in whichever tier."""
    get = question.depths.get
    return [get(w.worker_id, 0) for w in workers]


def local_terms(
    question: RouteQuestion, workers: Sequence[WorkerLoad], held: Sequence[int]
) -> Terms:
    """Prefill at each worker from its own prefix, which slower tiers bring into memory first."""
    num_tokens = question.num_tokens
    all_pairs = num_tokens * (num_tokens + 1) / 2
    computes = [
        (rates := w.rates).prefill_us_per_token * num_tokens + rates.prefill_us_per_pair * all_pairs
        for w in workers
    ]
    before = [0.0] * len(computes)
    if not question.depths:
        return before, computes
    memory, most = question.memory_depths.get, question.max_cached_blocks
    size, block_nbytes = question.block_size, question.block_nbytes
    for index, depth in enumerate(held):
        if depth:
            worker, depth = workers[index], min(depth, most)
            computes[index] = prefill_us(worker.rates, num_tokens, depth * size)
            if worker.tier_bytes_per_us:
                below = max(0, depth - memory(worker.worker_id, 0))
                before[index] = below * block_nbytes / worker.tier_bytes_per_us
    return before, computes


def fetched_terms(
    question: RouteQuestion, found: Survey, workers: Sequence[WorkerLoad], held: Sequence[int]
) -> Terms:
    """Prefill at each worker after the best prefix was copied there; unreachable if it cannot be.

    (P* - P_i) c_x and (S - P*) c_p of 0x09I.
    """
    best, rate = found.best_blocks, question.bytes_per_us
    if not best or not rate:
        return [UNREACHABLE] * len(workers), [0.0] * len(workers)
    cached, num_tokens = best * question.block_size, question.num_tokens
    rows = num_tokens - cached
    pairs = rows * cached + rows * (rows + 1) / 2
    computes = [
        (rates := w.rates).prefill_us_per_token * rows + rates.prefill_us_per_pair * pairs
        for w in workers
    ]
    block_us, overhead_us = question.block_nbytes / rate, question.overhead_us
    before = [
        (best - depth) * block_us + overhead_us if depth < best else UNREACHABLE for depth in held
    ]
    return before, computes


def total_us(terms: Terms) -> list[float]:
    """Both terms of each worker."""
    return [first + second for first, second in zip(*terms, strict=True)]
