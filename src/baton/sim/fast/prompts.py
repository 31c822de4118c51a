"""Prompts of a worker's queue that run in a step; the queue is in the order of arrival."""

from baton.compiled import compiled
from baton.sim.fast import columns as c
from baton.sim.fast.extras import Extras
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
def next_prompt(
    s: State, x: Extras | None, number: int, link: int, is_short: bool
) -> tuple[int, bool]:
    """The first startable prompt from a place of the queue on, and whether one was short.

    Who cannot get blocks lets those pass that have theirs. The answer is a link: 0 for nobody.
    """
    while link > 0:
        request = link - 1
        if s.requests[request, c.R_IN_STEP] == 0:
            if has_blocks(s, request):
                return link, is_short
            if not is_short:
                if admit_prompt(s, x, number, request):
                    return link, False
                is_short = True
        link = s.requests[request, c.R_NEXT]
    return 0, is_short


@compiled
def add_cut_prompts(
    s: State, x: Extras | None, number: int, lane: int, num_seqs: int, budget: int
) -> None:
    """Chunks in the order of the queue up to the budget; nobody overtakes who was cut."""
    worker = s.workers[number]
    link, is_short = next_prompt(s, x, number, worker[c.W_HEAD], False)
    while link > 0 and num_seqs < worker[c.W_MAX_SEQS] and budget > 0:
        request = link - 1
        num_rows = cut(s, worker, request, budget)
        is_cut = num_rows < num_missing(s, request)
        add_chunk(s, lane, request, num_rows)
        num_seqs += 1
        budget -= num_rows
        if is_cut:
            return
        link, is_short = next_prompt(s, x, number, s.requests[request, c.R_NEXT], is_short)


@compiled
def add_whole_prompts(s: State, x: Extras | None, number: int, lane: int) -> None:
    """Prompts uncut, in their order, while they fit; one above the whole budget runs alone."""
    worker, num_tokens, num_seqs = s.workers[number], 0, 0
    link, is_short = worker[c.W_HEAD], False
    while link > 0 and num_seqs < worker[c.W_MAX_SEQS]:
        request = link - 1
        if s.requests[request, c.R_IN_STEP] > 0:
            link = s.requests[request, c.R_NEXT]
            continue
        # Only who would be chosen takes blocks; what is found of its prefix leaves room for others.
        if not has_blocks(s, request) and not _fits(s, worker, request, num_tokens):
            return
        link, is_short = next_prompt(s, x, number, link, is_short)
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
def add_reserved_prompts(s: State, x: Extras | None, number: int, lane: int, num_seqs: int) -> None:
    """ORCA: whole prompts in order, while whole lengths fit beside those that are reserved."""
    worker = s.workers[number]
    reserved, num_slots = worker[c.W_RESERVED], worker[c.W_NUM_BLOCKS] * worker[c.W_BLOCK_SIZE]
    link, is_short = next_prompt(s, x, number, worker[c.W_HEAD], False)
    while link > 0 and not is_short and num_seqs < worker[c.W_MAX_SEQS]:
        request = link - 1
        reserved += s.requests[request, c.R_PROMPT] + s.requests[request, c.R_BOUND]
        # The first of an empty pool runs whatever it reserves: it could never wait for more.
        if reserved > num_slots and num_seqs > 0:
            return
        add_chunk(s, lane, request, num_missing(s, request))
        num_seqs += 1
        link, is_short = next_prompt(s, x, number, s.requests[request, c.R_NEXT], is_short)


@compiled
def token_budget(s: State, x: Extras | None, number: int, lane: int, num_run: int) -> int:
    """vLLM's frontier: whoever has started in order of arrival, whatever its phase, then the rest.

    Decodes that came after a prompt that is cut are the ones that may get nothing. They stand last
    in the lane: they joined it after that prompt was cut.
    """
    worker = s.workers[number]
    budget, num_seqs, num_before = worker[c.W_MAX_TOKENS], 0, 0
    link, is_short = next_prompt(s, x, number, worker[c.W_HEAD], False)
    while link > 0 and s.requests[link - 1, c.R_STARTED] > 0 and budget > 0:
        request = link - 1
        if budget < num_missing(s, request) + num_run - num_before:
            before = _num_before(s, lane, s.requests[request, c.R_ORDER])
            before = min(num_run, max(num_before, before))
            budget -= before - num_before
            num_before = before
        if budget > 0:
            num_rows = cut(s, worker, request, budget)
            add_chunk(s, lane, request, num_rows)
            budget -= num_rows
            num_seqs += 1
        link, is_short = next_prompt(s, x, number, s.requests[request, c.R_NEXT], is_short)
    num_after = min(num_run - num_before, max(0, budget))
    budget -= num_after
    num_run = num_before + num_after
    num_seqs += num_run
    while link > 0 and num_seqs < worker[c.W_MAX_SEQS] and budget > 0:
        request = link - 1
        num_rows = cut(s, worker, request, budget)
        add_chunk(s, lane, request, num_rows)
        budget -= num_rows
        num_seqs += 1
        link, is_short = next_prompt(s, x, number, s.requests[request, c.R_NEXT], is_short)
    return int(num_run)


@compiled
def _num_before(s: State, lane: int, order: int) -> int:
    """Decodes of the lane that came to the worker before that."""
    link, num = s.lanes[lane, c.L_HEAD], 0
    while link > 0:
        if s.requests[link - 1, c.R_ORDER] < order:
            num += 1
        link = s.requests[link - 1, c.R_NEXT]
    return num
