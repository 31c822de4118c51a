"""Which rows run next: `policy.batching` on the fast host's arrays, one function for each kind.

Each puts prompt chunks into the lane's list and returns how many decodes run; those beyond, the
latest, are passed over.
"""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.extras import Extras
from baton.sim.fast.prompts import (
    add_chunk,
    add_cut_prompts,
    add_reserved_prompts,
    add_whole_prompts,
    cut,
    next_prompt,
    num_missing,
    token_budget,
)
from baton.sim.fast.state import State


@compiled
def choose(s: State, x: Extras | None, number: int, lane: int) -> int:
    """Chunks into the lane, and how many of its decodes run."""
    worker = s.workers[number]
    policy, num_decodes = worker[c.W_POLICY], s.lanes[lane, c.L_NUM_DECODES]
    most = min(worker[c.W_MAX_SEQS], worker[c.W_MAX_TOKENS])
    num_run = min(num_decodes, most)
    if worker[c.W_HEAD] == 0:
        return int(num_run)
    if policy == c.SARATHI_SERVE:
        num_seqs, budget = num_run + worker[c.W_JUST_ENDED], worker[c.W_MAX_TOKENS] - num_run
        add_cut_prompts(s, x, number, lane, num_seqs, budget)
        return int(num_run)
    if policy == c.SARATHI:
        return _sarathi(s, x, number, lane, num_run, min(num_decodes, most - 1))
    if policy == c.DECODE_FIRST:
        if num_run == 0:
            add_whole_prompts(s, x, number, lane)
        return int(num_run)
    if policy == c.PREFILL_FIRST:
        add_whole_prompts(s, x, number, lane)
        return int(0 if s.lanes[lane, c.L_NUM_CHUNKS] > 0 else num_run)
    if policy == c.WHOLE_HYBRID:
        return _whole_hybrid(s, x, number, lane, num_run)
    if policy == c.PHASE_PURE:
        return _phase_pure(s, x, number, lane, num_run)
    if policy == c.TOKEN_BUDGET:
        return token_budget(s, x, number, lane, num_run)
    if policy == c.ORCA:
        add_reserved_prompts(s, x, number, lane, num_run)
    elif num_run == 0:  # static: a new batch when nobody of the last one is left
        add_whole_prompts(s, x, number, lane)
    return int(num_run)


@compiled
def _sarathi(s: State, x: Extras | None, number: int, lane: int, alone: int, beside: int) -> int:
    """One chunk of one prompt, and the decodes that fit beside it."""
    worker = s.workers[number]
    link, _ = next_prompt(s, x, number, worker[c.W_HEAD], False)
    if link == 0:
        return alone
    num_rows = cut(s, worker, link - 1, worker[c.W_MAX_TOKENS] - beside)
    add_chunk(s, lane, link - 1, num_rows)
    return beside


@compiled
def _whole_hybrid(s: State, x: Extras | None, number: int, lane: int, num_run: int) -> int:
    """Whole prompts, and decodes in the room that they leave."""
    worker, here = s.workers[number], s.lanes[lane]
    add_whole_prompts(s, x, number, lane)
    num_chunks = here[c.L_NUM_CHUNKS]
    if num_chunks == 0:
        return num_run
    num_rows = 0
    for place in range(num_chunks):
        num_rows += s.chunks[lane, place, 1]
    left = min(worker[c.W_MAX_TOKENS] - num_rows, worker[c.W_MAX_SEQS] - num_chunks)
    return int(max(0, min(num_run, left)))


@compiled
def _phase_pure(s: State, x: Extras | None, number: int, lane: int, num_run: int) -> int:
    """Prompts alone or decodes alone, in turns where there are both."""
    worker = s.workers[number]
    if s.lanes[lane, c.L_NUM_PASSED] > 0 and num_run > 0:
        return num_run
    link, _ = next_prompt(s, x, number, worker[c.W_HEAD], False)
    if link == 0:
        return num_run
    num_rows = cut(s, worker, link - 1, worker[c.W_MAX_TOKENS])
    if num_rows < num_missing(s, link - 1):
        add_chunk(s, lane, link - 1, num_rows)
    else:
        add_whole_prompts(s, x, number, lane)
    return 0
