"""Early rejection in its predicted form (`policy.admission`): refused before any compute."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast import routes_fleet as f
from baton.sim.fast.extras import Extras
from baton.sim.fast.questions import mean_decode_us
from baton.sim.fast.state import State


@compiled
def join_open(s: State, x: Extras | None, request: int, source: int) -> None:
    """It is admitted; its prompt is expected to be computed behind those that wait there."""
    if x is not None:
        one, queue_us = s.requests[request], x.fleet.clocks[source, f.PENDING_US]
        s.request_us[request, c.R_DUE_US] = s.numbers[c.N_NOW_US] + queue_us
        if one[c.R_IS_OPEN] == 0:
            last = s.counts[c.C_OPEN_TAIL]
            one[c.R_IS_OPEN], one[c.R_OPEN_PREVIOUS], one[c.R_OPEN_NEXT] = 1, last, 0
            if last > 0:
                s.requests[last - 1, c.R_OPEN_NEXT] = request + 1
            else:
                s.counts[c.C_OPEN_HEAD] = request + 1
            s.counts[c.C_OPEN_TAIL] = request + 1


@compiled
def leave_open(s: State, request: int) -> None:
    """It has ended, or waits for another route."""
    one = s.requests[request]
    if one[c.R_IS_OPEN] == 0:
        return
    one[c.R_IS_OPEN] = 0
    following, previous = one[c.R_OPEN_NEXT], one[c.R_OPEN_PREVIOUS]
    if previous > 0:
        s.requests[previous - 1, c.R_OPEN_NEXT] = following
    else:
        s.counts[c.C_OPEN_HEAD] = following
    if following > 0:
        s.requests[following - 1, c.R_OPEN_PREVIOUS] = previous
    else:
        s.counts[c.C_OPEN_TAIL] = previous


@compiled
def num_decoding(s: State, x: Extras, at_us: float) -> int:
    """Requests that will decode at that moment."""
    decode_us, now_us, count = mean_decode_us(s, x), s.numbers[c.N_NOW_US], 0
    link = s.counts[c.C_OPEN_HEAD]
    while link > 0:
        one = s.requests[link - 1]
        from_us = max(now_us, s.request_us[link - 1, c.R_DUE_US])
        if one[c.R_PHASE] == c.DECODING:
            from_us = s.request_us[link - 1, c.R_PUBLISHED_US]
        if from_us <= at_us and (decode_us == 0.0 or at_us < from_us + decode_us):
            count += 1
        link = one[c.R_OPEN_NEXT]
    return count


@compiled
def decode_load(s: State, x: Extras, count: int) -> float:
    """Mean over the decode workers, each with its share of `count` and this request."""
    loads, clocks, num_workers = x.fleet.loads, x.fleet.clocks, 0
    for number in range(len(loads)):
        num_workers += loads[number, f.ROLE] != f.PREFILL and loads[number, f.IS_UP] > 0
    if num_workers == 0:
        return 0.0
    share, total = count / num_workers + 1.0, 0.0
    for number in range(len(loads)):
        if loads[number, f.ROLE] != f.PREFILL and loads[number, f.IS_UP] > 0:
            more = share - loads[number, f.RUNNING]
            time_us = clocks[number, f.STEP_US] + clocks[number, f.SEQUENCE_US] * more
            in_time = 0.0
            if x.fleet.values[f.TPOT_SLO_US] > 0.0:
                in_time = max(0.0, time_us) / x.fleet.values[f.TPOT_SLO_US]
            total += max(in_time, share / s.workers[number, c.W_MAX_ADMITTED])
    return float(total / num_workers)


@compiled
def is_refused(s: State, x: Extras, is_routed: bool) -> bool:
    """By the larger load of both sides; without a route its prefill would start late."""
    values = x.fleet.values
    ttft_slo_us, ttft_us = values[f.TTFT_SLO_US], 0.0
    if ttft_slo_us == 0.0 and values[f.TPOT_SLO_US] == 0.0:
        return False
    if is_routed:
        ttft_us = values[f.CHOSEN_TTFT_US]
    prefill_load = ttft_us / ttft_slo_us if ttft_slo_us > 0.0 else 0.0
    at_us = s.numbers[c.N_NOW_US] + ttft_us
    load = decode_load(s, x, num_decoding(s, x, at_us))
    return bool(max(prefill_load, load) > 1.0)
