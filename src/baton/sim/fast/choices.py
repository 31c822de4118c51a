"""Which rows run next: `policy.batching` on the fast host's arrays, one function for each kind.

Each puts prompt chunks into the lane's list and returns how many decodes run; those beyond are
passed over. Prompts are in the order of the queue, which is that of arrival.
"""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.memory import admit_prompt
from baton.sim.fast.state import Ints, State


@compiled
def num_missing(s: State, request: int) -> int:
    """Rows before its next token."""
    one = s.requests[request]
    return int(one[c.R_PROMPT] + one[c.R_PRODUCED] - one[c.R_COMPUTED])


@compiled
def has_blocks(s: State, request: int) -> bool:
    """Its rows have a place."""
    one = s.requests[request]
    return bool(one[c.R_SOURCE_BLOCKS] > 0 if one[c.R_AT_PREFILL] > 0 else one[c.R_BLOCKS] > 0)


@compiled
def cut(s: State, worker: Ints, request: int, budget: int) -> int:
    """Rows that fit: all of them, else up to the last grid line, else whatever fits."""
    num_rows = num_missing(s, request)
    if num_rows <= budget:
        return num_rows
    position, grid = s.requests[request, c.R_COMPUTED], worker[c.W_GRID]
    end = position + budget
    aligned = end - end % grid - position
    return int(aligned if aligned > 0 else budget)


@compiled
def add_chunk(s: State, lane: int, request: int, num_rows: int) -> None:
    """Some rows of a prompt run in the step."""
    number = s.lanes[lane, c.L_NUM_CHUNKS]
    s.chunks[lane, number, 0], s.chunks[lane, number, 1] = request, num_rows
    s.lanes[lane, c.L_NUM_CHUNKS] = number + 1
    s.requests[request, c.R_STARTED] = 1
    s.requests[request, c.R_IN_STEP] = 1


@compiled
def next_prompt(s: State, worker: Ints, link: int, is_short: bool) -> tuple[int, bool]:
    """The first startable prompt from a place of the queue on, and whether one was short.

    Who cannot get blocks lets those pass that have theirs. The answer is a link: 0 for nobody.
    """
    while link > 0:
        request = link - 1
        if s.requests[request, c.R_IN_STEP] == 0:
            if has_blocks(s, request):
                return link, is_short
            if not is_short:
                if admit_prompt(s, worker, request):
                    return link, False
                is_short = True
        link = s.requests[request, c.R_NEXT]
    return 0, is_short


@compiled
def add_cut_prompts(s: State, lane: int, worker: Ints, num_seqs: int, budget: int) -> None:
    """Chunks in the order of the queue up to the budget; nobody overtakes who was cut."""
    link, is_short = next_prompt(s, worker, worker[c.W_HEAD], False)
    while link > 0 and num_seqs < worker[c.W_MAX_SEQS] and budget > 0:
        request = link - 1
        num_rows = cut(s, worker, request, budget)
        is_cut = num_rows < num_missing(s, request)
        add_chunk(s, lane, request, num_rows)
        num_seqs += 1
        budget -= num_rows
        if is_cut:
            return
        link, is_short = next_prompt(s, worker, s.requests[request, c.R_NEXT], is_short)


@compiled
def add_whole_prompts(s: State, lane: int, worker: Ints) -> None:
    """Prompts uncut, in their order, while they fit; one above the whole budget runs alone."""
    num_tokens, num_seqs = 0, 0
    link, is_short = worker[c.W_HEAD], False
    while link > 0 and num_seqs < worker[c.W_MAX_SEQS]:
        request = link - 1
        # Only who would be chosen takes blocks; what is found of its prefix leaves room for others.
        if not has_blocks(s, request) and not _fits(s, worker, request, num_tokens):
            return
        link, is_short = next_prompt(s, worker, link, is_short)
        if link == 0:
            return
        request = link - 1
        if not _fits(s, worker, request, num_tokens):
            return
        num_rows = num_missing(s, request)
        add_chunk(s, lane, request, num_rows)
        num_tokens += num_rows
        num_seqs += 1
        link = s.requests[request, c.R_NEXT]


@compiled
def _fits(s: State, worker: Ints, request: int, num_tokens: int) -> bool:
    all_tokens = num_tokens + num_missing(s, request)
    return bool(num_tokens == 0 or all_tokens <= worker[c.W_MAX_TOKENS])


@compiled
def choose(s: State, lane: int, worker: Ints) -> int:
    """Chunks into the lane, and how many of its decodes run."""
    policy, num_decodes = worker[c.W_POLICY], s.lanes[lane, c.L_NUM_DECODES]
    most = min(worker[c.W_MAX_SEQS], worker[c.W_MAX_TOKENS])
    num_run = min(num_decodes, most)
    if worker[c.W_HEAD] == 0:
        return int(num_run)
    if policy == c.SARATHI_SERVE:
        add_cut_prompts(s, lane, worker, num_run, worker[c.W_MAX_TOKENS] - num_run)
        return int(num_run)
    if policy == c.SARATHI:
        return _sarathi(s, lane, worker, num_run, min(num_decodes, most - 1))
    if policy == c.DECODE_FIRST:
        if num_run == 0:
            add_whole_prompts(s, lane, worker)
        return int(num_run)
    if policy == c.PREFILL_FIRST:
        add_whole_prompts(s, lane, worker)
        return int(0 if s.lanes[lane, c.L_NUM_CHUNKS] > 0 else num_run)
    return _phase_pure(s, lane, worker, num_run)


@compiled
def _sarathi(s: State, lane: int, worker: Ints, alone: int, beside: int) -> int:
    """One chunk of one prompt, and the decodes that fit beside it."""
    link, _ = next_prompt(s, worker, worker[c.W_HEAD], False)
    if link == 0:
        return alone
    num_rows = cut(s, worker, link - 1, worker[c.W_MAX_TOKENS] - beside)
    add_chunk(s, lane, link - 1, num_rows)
    return beside


@compiled
def _phase_pure(s: State, lane: int, worker: Ints, num_run: int) -> int:
    """Prompts alone or decodes alone, in turns where there are both."""
    if s.lanes[lane, c.L_NUM_PASSED] > 0 and num_run > 0:
        return num_run
    link, _ = next_prompt(s, worker, worker[c.W_HEAD], False)
    if link == 0:
        return num_run
    num_rows = cut(s, worker, link - 1, worker[c.W_MAX_TOKENS])
    if num_rows < num_missing(s, link - 1):
        add_chunk(s, lane, link - 1, num_rows)
    else:
        add_whole_prompts(s, lane, worker)
    return 0
