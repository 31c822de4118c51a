"""Copies of a prefix from the worker that has it to the one that will use it, before the route."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast import routes_fleet as f
from baton.sim.fast.events import after
from baton.sim.fast.extras import Extras
from baton.sim.fast.kept import drop_chain, hold_prefix, note_peak, tokens_of
from baton.sim.fast.network import release, start_flow
from baton.sim.fast.network_state import Network
from baton.sim.fast.prefixes import NUM_HELD, publish
from baton.sim.fast.state import State
from baton.sim.fast.stretches import take_beside


@compiled
def begin_fetch(s: State, net: Network, x: Extras, request: int) -> bool:
    """False where the target has no room; both ends are pinned until the copy is there."""
    one = s.requests[request]
    owner, target = x.fleet.counts[f.FETCH_OWNER], x.fleet.counts[f.CHOSEN_PREFILL]
    num_hashes = x.fleet.counts[f.FETCH_BLOCKS]
    chain, found = hold_prefix(s, x, target, request, tokens_of(s, num_hashes))
    room = (num_hashes - found) * s.workers[target, c.W_PER_HASH]
    if room <= 0 or not take_beside(s, x, target, room):
        drop_chain(x, target, chain)
        return False
    note_peak(s, x, target)
    one[c.R_FETCH], one[c.R_FETCH_BLOCKS] = target + 1, num_hashes
    one[c.R_FETCH_FOUND], one[c.R_FETCH_CHAIN] = found, chain
    one[c.R_FETCH_OWNER] = owner
    one[c.R_OWNER_CHAIN], _ = hold_prefix(s, x, owner, request, tokens_of(s, num_hashes))
    one[c.R_PHASE] = c.FETCHING
    s.counts[c.C_FETCHED] += tokens_of(s, num_hashes - found)
    now_us, nbytes = s.numbers[c.N_NOW_US], s.numbers[c.N_TOKEN_NBYTES]
    nbytes *= tokens_of(s, num_hashes - found)
    one[c.R_FLOW] = 1 + start_flow(net, now_us, request, owner, target, nbytes)
    release(net, one[c.R_FLOW] - 1, now_us, nbytes)
    return True


@compiled
def fetch_sent(s: State, request: int) -> None:
    """The last byte left; the copy is known after its reservation's and its seal's messages."""
    delay_us = s.numbers[c.N_LATENCY_US] + 4.0 * s.numbers[c.N_CONTROL_US]
    s.requests[request, c.R_FLOW] = 0
    after(s, delay_us, c.E_FETCHED, request, s.requests[request, c.R_ATTEMPT])


@compiled
def end_fetch(s: State, x: Extras | None, request: int) -> None:
    """The target has the prefix, as anybody's history."""
    if x is not None:
        one = s.requests[request]
        target = one[c.R_FETCH] - 1
        begin, end = one[c.R_FETCH_FOUND], one[c.R_FETCH_BLOCKS]
        before = x.prefixes.workers[target, NUM_HELD]
        chain = publish(x.prefixes, target, request, one[c.R_FETCH_CHAIN], begin, end)
        num_new = x.prefixes.workers[target, NUM_HELD] - before
        unused = end - begin - num_new
        s.workers[target, c.W_FREE] += s.workers[target, c.W_PER_HASH] * unused
        drop_chain(x, target, chain)
        drop_chain(x, one[c.R_FETCH_OWNER], one[c.R_OWNER_CHAIN])
        one[c.R_FETCH_CHAIN] = one[c.R_OWNER_CHAIN] = 0
