"""The parts that policies share: the cheapest of some prices, the decode side, the clocks."""

from collections.abc import Sequence

from baton.core.ids import Direction
from baton.policy.routing.decision import Alternative, Decision, Fetch, Pair, Rejection
from baton.policy.routing.load import WorkerLoad, least_loaded
from baton.policy.routing.price import (
    decode_reuse_tokens,
    exposed_us,
    prefill_reuse_blocks,
    prefill_us,
    transfer_us,
)
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.survey import Survey

_NUM_ALTERNATIVES = 3


def cheapest(workers: Sequence[WorkerLoad], prices: list[float]) -> int:
    """Index of the lowest price; of equal ones the shortest queue, then the name."""
    lowest = min(prices)
    first = prices.index(lowest)
    if prices.count(lowest) == 1:
        return first
    equal = [index for index, price in enumerate(prices) if price == lowest]
    return min(
        equal,
        key=lambda i: (
            workers[i].pending_tokens,
            workers[i].active_requests,
            workers[i].worker_id,
        ),
    )


def fastest_decode(workers: Sequence[WorkerLoad]) -> WorkerLoad:
    """The lowest predicted TPOT; of equal ones the least loaded."""
    lowest = min([w.tpot_us for w in workers])
    return least_loaded([w for w in workers if w.tpot_us == lowest])


def others(
    found: Survey, prices: list[float], taken: int, decode: WorkerLoad
) -> tuple[Alternative, ...]:
    """The next best sources, with what they would have cost."""
    sources = found.sources
    if len(prices) == 1:
        return ()
    limit = sorted(prices)[: _NUM_ALTERNATIVES + 1][-1]
    near = [index for index, price in enumerate(prices) if price <= limit and index != taken]
    near.sort(key=lambda i: (prices[i], sources[i].pending_tokens, sources[i].worker_id))
    picked = near[:_NUM_ALTERNATIVES]
    return tuple(
        Alternative(
            pair=Pair(
                prefill=sources[index].worker_id,
                decode=sources[index].worker_id if found.mixed else decode.worker_id,
            ),
            price=prices[index],
        )
        for index in picked
    )


def decide(
    question: RouteQuestion,
    prefill: WorkerLoad,
    decode: WorkerLoad,
    *,
    reason: str,
    price: float = 0.0,
    fetch: Fetch | None = None,
    direction: Direction | None = None,
    alternatives: tuple[Alternative, ...] = (),
) -> Decision:
    """A decision with both clocks predicted for the chosen pair alone."""
    size, rates = question.block_size, prefill.rates
    local = prefill_reuse_blocks(question, prefill)
    before_us = prefill.pending_us
    if fetch is not None:
        missing_nbytes = (fetch.num_blocks - local) * question.block_nbytes
        before_us += transfer_us(missing_nbytes, question.bytes_per_us, question.overhead_us)
    elif prefill.tier_bytes_per_us:
        below = max(0, local - question.memory_depths.get(prefill.worker_id, 0))
        before_us += below * question.block_nbytes / prefill.tier_bytes_per_us
    cached = (fetch.num_blocks if fetch else local) * size
    compute_us = prefill_us(rates, question.num_tokens, cached)
    ttft_us = before_us + compute_us + decode.admission_us
    reuse = cached
    if decode is not prefill:
        reuse = decode_reuse_tokens(question, decode)
        nbytes = (question.num_tokens - reuse) * question.bytes_per_token
        moved_us = transfer_us(nbytes, question.bytes_per_us, question.overhead_us)
        ttft_us += exposed_us(compute_us, moved_us, question.num_layers, question.schedule)
    return Decision(
        pair=Pair(prefill=prefill.worker_id, decode=decode.worker_id),
        fetch=fetch,
        prefill_reuse_tokens=cached,
        decode_reuse_tokens=reuse,
        ttft_us=ttft_us,
        tpot_us=decode.tpot_us,
        price=price,
        reason=reason,
        direction=direction,
        alternatives=alternatives,
    )


def refusal(question: RouteQuestion, decision: Decision) -> Rejection | None:
    """Why the best route is not taken: a clock that it would miss."""
    ttft_slo_us, tpot_slo_us = question.ttft_slo_us, question.tpot_slo_us
    code, reason, wait_us = "", "", 0.0
    if tpot_slo_us and decision.tpot_us > tpot_slo_us:
        code = "tpot_slo"
        reason = _missed("one token", decision.tpot_us, tpot_slo_us)
    elif ttft_slo_us and decision.ttft_us > ttft_slo_us:
        code, wait_us = "ttft_slo", decision.ttft_us - ttft_slo_us
        reason = _missed("the first token", decision.ttft_us, ttft_slo_us)
    if not code:
        return None
    return Rejection(
        code=code,
        reason=reason,
        ttft_us=decision.ttft_us,
        tpot_us=decision.tpot_us,
        wait_us=wait_us,
    )


def _missed(what: str, predicted_us: float, slo_us: int) -> str:
    return f"{what} would take {predicted_us / 1000:.1f} ms, the target is {slo_us / 1000:.1f} ms"
