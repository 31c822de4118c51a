"""K/V from prefill to decode: released as it is computed, published when all of it is there."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.ends import draw_token, go_on
from baton.sim.fast.events import after
from baton.sim.fast.extras import Extras
from baton.sim.fast.fetches import fetch_sent
from baton.sim.fast.kept import drop_chain, name_at_decode, name_at_source
from baton.sim.fast.network import release, release_layers, start_flow
from baton.sim.fast.network_state import Network
from baton.sim.fast.queues import unlink
from baton.sim.fast.state import State
from baton.sim.fast.stretches import settle


@compiled
def _moved_rows(s: State, request: int, start: int, end: int) -> int:
    """Of some rows, those that the decode worker lacks."""
    held = s.requests[request, c.R_PROMPT] + s.requests[request, c.R_PRODUCED]
    held -= s.requests[request, c.R_NEEDS_MOVE]
    return int(max(0, end - max(start, held)))


@compiled
def _open_flow(s: State, net: Network, request: int) -> None:
    """A flow for all that moves; what was cached at the prefill worker is there already."""
    one, now_us = s.requests[request], s.numbers[c.N_NOW_US]
    nbytes = s.numbers[c.N_TOKEN_NBYTES] * one[c.R_NEEDS_MOVE]
    flow = start_flow(net, now_us, request, one[c.R_PREFILL], one[c.R_DECODE], nbytes)
    one[c.R_FLOW] = flow + 1
    one[c.R_MOVED] += one[c.R_NEEDS_MOVE]
    cached = _moved_rows(s, request, 0, one[c.R_COMPUTED])
    if cached > 0:
        release(net, flow, now_us, s.numbers[c.N_TOKEN_NBYTES] * cached)


@compiled
def release_chunks(s: State, net: Network, lane: int, start_us: float, end_us: float) -> None:
    """Layers of the step that begins may leave as they are computed."""
    for k in range(s.lanes[lane, c.L_NUM_CHUNKS]):
        request, num_rows = s.chunks[lane, k, 0], s.chunks[lane, k, 1]
        one = s.requests[request]
        if one[c.R_AT_PREFILL] == 0:
            continue
        if not s.request_us[request, c.R_START_US] >= 0.0:
            s.request_us[request, c.R_START_US] = start_us
        if s.counts[c.C_IS_LAYERED] == 0 or one[c.R_NEEDS_MOVE] == 0:
            continue
        if one[c.R_FLOW] == 0:
            _open_flow(s, net, request)
        first = one[c.R_COMPUTED]
        rows = _moved_rows(s, request, first, first + num_rows)
        if rows > 0:
            nbytes = s.numbers[c.N_TOKEN_NBYTES] * rows
            layers = s.counts[c.C_NUM_LAYERS]
            release_layers(net, one[c.R_FLOW] - 1, start_us, start_us, end_us, layers, nbytes)


@compiled
def prompt_prefilled(s: State, net: Network, x: Extras | None, request: int) -> None:
    """Its last row is computed, its token drawn: whatever has not left may leave now."""
    one, now_us = s.requests[request], s.numbers[c.N_NOW_US]
    unlink(s.requests, s.workers[one[c.R_PREFILL]], c.W_HEAD, request)
    s.request_us[request, c.R_PREFILLED_US] = now_us
    one[c.R_PHASE] = c.MOVING
    name_at_source(s, x, request)
    if one[c.R_NEEDS_MOVE] == 0 or one[c.R_FLOW] < 0:
        after(s, s.numbers[c.N_CONTROL_US], c.E_PUBLISH, request, one[c.R_ATTEMPT])
    elif one[c.R_FLOW] == 0:
        one[c.R_COMPUTED] = one[c.R_PROMPT] + one[c.R_PRODUCED]
        _open_flow(s, net, request)


@compiled
def flow_finished(s: State, request: int) -> None:
    """Its last byte was sent; it is published once its prompt's end is known too."""
    one = s.requests[request]
    if one[c.R_PHASE] == c.FETCHING:
        fetch_sent(s, request)
        return
    one[c.R_FLOW] = -1
    latency_us = s.numbers[c.N_LATENCY_US]
    s.request_us[request, c.R_MOVED_US] = s.numbers[c.N_NOW_US] + latency_us
    if one[c.R_PHASE] == c.MOVING:
        delay_us = latency_us + s.numbers[c.N_CONTROL_US]
        after(s, delay_us, c.E_PUBLISH, request, one[c.R_ATTEMPT])


@compiled
def publish(s: State, x: Extras | None, request: int) -> None:
    """The decode worker owns it now: its token goes to the client, its other copy may go."""
    one, control_us = s.requests[request], s.numbers[c.N_CONTROL_US]
    settle(s, x, one[c.R_DECODE])
    after(s, control_us, c.E_KNOWN, request, one[c.R_ATTEMPT])
    after(s, control_us, c.E_RELEASE, request, one[c.R_ATTEMPT])
    one[c.R_AT_PREFILL] = 0
    s.request_us[request, c.R_PUBLISHED_US] = s.numbers[c.N_NOW_US]
    if s.counts[c.C_ONLY_MISSING] > 0:
        name_at_decode(s, x, one[c.R_DECODE], request)
    draw_token(s, request)
    go_on(s, x, one[c.R_DECODE], request)


@compiled
def release_source(s: State, x: Extras | None, request: int) -> None:
    """The prefill worker may forget it."""
    one = s.requests[request]
    s.workers[one[c.R_PREFILL], c.W_FREE] += one[c.R_SOURCE_BLOCKS]
    drop_chain(x, one[c.R_PREFILL], one[c.R_SOURCE_CHAIN])
    one[c.R_SOURCE_BLOCKS] = one[c.R_SOURCE_CHAIN] = one[c.R_SOURCE_CHAINED] = 0
