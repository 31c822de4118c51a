"""Early rejection and its predicted form: who is refused before any compute (Mooncake, 0x09H).

A side's load is its predicted latency over the target; a request is refused when the larger one
exceeds 1. Early rejection looks at the decode side as it is now. By the time that an admitted
prompt has been computed it looks different, and the two sides begin to swing against each other.
The predicted form looks at the moment when this prefill would end: requests whose prefill ends by
then decode, and those that have decoded for the usual time are gone.
"""

from collections.abc import Sequence

import msgspec

from baton.policy.routing.decision import Decision, Rejection
from baton.policy.routing.load import WorkerLoad


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """One admitted request, by the moment since which it decodes, or from which on it will."""

    decodes_from_us: int
    is_decoding: bool


class AdmissionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What the test needs beyond the route itself."""

    now_us: int
    predicts: bool
    ttft_slo_us: int = 0
    """What is left of it; 0: no target."""
    tpot_slo_us: int = 0
    decode_us: int = 0
    """t_d, how long a request decodes; 0: nobody has finished yet, and nobody is taken to leave."""


def num_decoding(requests: Sequence[InFlight], question: AdmissionQuestion, at_us: float) -> int:
    """Requests that decode now or, predicted, at a later moment."""
    if not question.predicts:
        return sum(request.is_decoding for request in requests)
    return sum(
        request.decodes_from_us <= at_us
        and (not question.decode_us or at_us < request.decodes_from_us + question.decode_us)
        for request in requests
    )


def decode_load(count: int, workers: Sequence[WorkerLoad], tpot_slo_us: int) -> float:
    """Mean over the decode workers, each with its share of `count` and this request.

    The larger of its step over the target and of its sequences over what it can run at once.
    """
    if not workers:
        return 0.0
    share = count / len(workers) + 1
    loads = []
    for worker in workers:
        rates = worker.rates
        step_us = rates.decode_step_us + rates.decode_us_per_sequence * (share - worker.running)
        in_time = max(0.0, step_us) / tpot_slo_us if tpot_slo_us else 0.0
        in_room = share / worker.max_requests if worker.max_requests else 0.0
        loads.append(max(in_time, in_room))
    return sum(loads) / len(loads)


def admission_refusal(
    question: AdmissionQuestion,
    decision: Decision | None,
    decodes: Sequence[WorkerLoad],
    requests: Sequence[InFlight],
) -> Rejection | None:
    """Why this request is refused now; None admits it. Without a route its prefill starts late."""
    ttft_us = decision.ttft_us if decision else 0.0
    tpot_us = decision.tpot_us if decision else 0.0
    prefill_load = ttft_us / question.ttft_slo_us if question.ttft_slo_us else 0.0
    count = num_decoding(requests, question, question.now_us + ttft_us)
    load = decode_load(count, decodes, question.tpot_slo_us)
    if max(prefill_load, load) <= 1.0:
        return None
    if prefill_load >= load:
        code, wait_us = "prefill_load", ttft_us - question.ttft_slo_us
        reason = f"the first token would take {prefill_load:.2f} of its target"
    else:
        code, wait_us = "decode_load", _next_end_us(question, requests)
        when = "would then be" if question.predicts else "are"
        reason = f"decode workers {when} loaded to {load:.2f} with {count} requests"
    return Rejection(code=code, reason=reason, ttft_us=ttft_us, tpot_us=tpot_us, wait_us=wait_us)


def _next_end_us(question: AdmissionQuestion, requests: Sequence[InFlight]) -> float:
    """When the next decode is expected to end; 0 where that is not known."""
    if not question.decode_us:
        return 0.0
    ends = [r.decodes_from_us + question.decode_us - question.now_us for r in requests]
    return float(max(0, min(ends, default=0)))
