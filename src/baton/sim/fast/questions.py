"""Asking for a route: the fleet's loads and clocks as they are now, and the answer."""

from baton.compiled import compiled
from baton.hardware.evaluate import Packed, step_us
from baton.sim.fast import columns as c
from baton.sim.fast import routes_fleet as f
from baton.sim.fast.accounts import can_hold, is_open
from baton.sim.fast.extras import NUM_ENDS, Extras
from baton.sim.fast.prefixes import find_depths
from baton.sim.fast.routes import choose
from baton.sim.fast.routes_policies import LOCAL_CACHE
from baton.sim.fast.state import State
from baton.sim.fast.stretches import num_over


@compiled
def ask(s: State, x: Extras, request: int, may_fetch: bool, source: int) -> int:
    """How the deployment's policy answers for a request; `source` is the only one, if not below 0.

    No part of this knows how long its answer will be.
    """
    _fill_question(s, x, request, may_fetch)
    for number in range(s.workers.shape[0]):
        _fill_load(s, x, request, number)
    if source >= 0:
        _keep_source(s, x, source)
    if s.counts[c.C_ROUTE] >= LOCAL_CACHE:
        _fill_depths(s, x, request)
    return choose(x.fleet, s.counts[c.C_ROUTE])


@compiled
def _keep_source(s: State, x: Extras, source: int) -> None:
    """The one for which a prefix was copied, unless it cannot serve now."""
    loads = x.fleet.loads
    is_local = s.workers[source, c.W_ROLE] == c.MIXED
    if loads[source, f.IS_UP] == 0 or (is_local and loads[source, f.CAN_HOLD] == 0):
        return
    for number in range(s.workers.shape[0]):
        if number != source and s.workers[number, c.W_ROLE] != c.DECODE:
            loads[number, f.IS_UP] = 0


@compiled
def _fill_question(s: State, x: Extras, request: int, may_fetch: bool) -> None:
    one, counts, values = s.requests[request], x.fleet.counts, x.fleet.values
    counts[f.DRAW] = (x.draws[request] + one[c.R_ATTEMPT]) % (1 << 62)
    counts[f.NUM_TOKENS] = one[c.R_PROMPT] + one[c.R_PRODUCED]
    counts[f.NUM_OUTPUT] = min(one[c.R_BOUND], mean_output(s, x, one[c.R_BOUND]))
    counts[f.MAY_FETCH] = 1 if may_fetch else 0
    waited_us = s.numbers[c.N_NOW_US] - s.request_us[request, c.R_NOTICED_US]
    # Who has had a token is not refused any more.
    is_bound = one[c.R_PRODUCED] == 0
    values[f.TTFT_SLO_US] = values[f.TPOT_SLO_US] = 0.0
    if is_bound and s.numbers[c.N_TTFT_SLO_US] > 0.0:
        values[f.TTFT_SLO_US] = max(1.0, s.numbers[c.N_TTFT_SLO_US] - waited_us)
    if is_bound:
        values[f.TPOT_SLO_US] = s.numbers[c.N_TPOT_SLO_US]


@compiled
def mean_output(s: State, x: Extras, otherwise: int) -> int:
    """Tokens of the latest answers that ended."""
    count = min(s.counts[c.C_NUM_ENDS], NUM_ENDS)
    if count == 0:
        return otherwise
    total = 0.0
    for k in range(count):
        total += x.ends[k, 1]
    return int(total / count)


@compiled
def mean_decode_us(s: State, x: Extras) -> float:
    """How long the latest ones decoded; 0 before anybody has ended."""
    count = min(s.counts[c.C_NUM_ENDS], NUM_ENDS)
    total = 0.0
    for k in range(count):
        total += x.ends[k, 0]
    return float(total / max(1, count))


@compiled
def note_end(s: State, x: Extras | None, request: int) -> None:
    """The router sees how long it decoded, and how long its answer is."""
    if x is not None:
        place = s.counts[c.C_NUM_ENDS] % NUM_ENDS
        s.counts[c.C_NUM_ENDS] += 1
        published_us = s.request_us[request, c.R_PUBLISHED_US]
        x.ends[place, 0] = max(0.0, s.numbers[c.N_NOW_US] - published_us)
        x.ends[place, 1] = s.requests[request, c.R_PRODUCED]


@compiled
def _fill_load(s: State, x: Extras, request: int, number: int) -> None:
    worker, load, clock = s.workers[number], x.fleet.loads[number], x.fleet.clocks[number]
    load[f.PENDING_TOKENS], load[f.ACTIVE] = worker[c.W_PENDING], worker[c.W_ACTIVE]
    load[f.HEADROOM] = worker[c.W_NUM_BLOCKS] - worker[c.W_ACCOUNT]
    load[f.TAKEN] = worker[c.W_TOKENS]
    load[f.CAN_HOLD] = 1 if can_hold(s, worker, request) else 0
    load[f.IS_UP] = 1 if is_open(worker) else 0
    running, seen = 0, 0
    for lane in range(worker[c.W_FIRST_LANE], worker[c.W_FIRST_LANE] + worker[c.W_NUM_LANES]):
        num_decodes = s.lanes[lane, c.L_NUM_DECODES]
        running += num_decodes
        seen += s.lanes[lane, c.L_NUM_SEEN] + num_decodes * num_over(s, lane)
    load[f.RUNNING] = running
    clock[f.PENDING_US] = clock[f.TOKEN_US] * worker[c.W_PENDING]
    clock[f.PENDING_US] += clock[f.PAIR_US] * worker[c.W_PAIRS]
    clock[f.STEP_US] = clock[f.SEQUENCE_US] = 0.0
    if running > 0:
        curves, rows = Packed(s.curves, worker[c.W_CURVES]), s.chunk_rows[0]
        now_us = step_us(curves, rows, rows, 0, running, float(seen))
        more_us = step_us(curves, rows, rows, 0, running + 1, seen * (1.0 + 1.0 / running))
        clock[f.STEP_US] = now_us * worker[c.W_NUM_LANES]
        clock[f.SEQUENCE_US] = max(0.0, more_us - now_us) * worker[c.W_NUM_LANES]


@compiled
def _fill_depths(s: State, x: Extras, request: int) -> None:
    loads, whole = x.fleet.loads, s.requests[request, c.R_PROMPT] // s.counts[c.C_PER_HASH]
    find_depths(x.prefixes, request, x.depths)
    for number in range(s.workers.shape[0]):
        depth = min(x.depths[number], whole)
        loads[number, f.DEPTH] = loads[number, f.MEMORY_DEPTH] = depth
