"""Steps of a lane: begun when its worker's first stage is free, ended when its last one is done."""

from baton.compiled import compiled
from baton.hardware.evaluate import Packed, is_outside, step_us, together_us
from baton.sim.fast import columns as c
from baton.sim.fast.choices import choose
from baton.sim.fast.decodes import leave_lane, pass_over
from baton.sim.fast.ends import draw_token, finish, go_on, release_held
from baton.sim.fast.events import after
from baton.sim.fast.extras import Extras
from baton.sim.fast.handoff import prompt_prefilled, release_chunks
from baton.sim.fast.kept import name_at_decode
from baton.sim.fast.memory import make_room
from baton.sim.fast.network_state import Network
from baton.sim.fast.queues import unlink
from baton.sim.fast.state import State
from baton.sim.fast.stretches import count_gaps, pass_steps, plan_stretch


@compiled
def choose_steps(s: State, x: Extras | None, number: int) -> int:
    """A lane of this worker whose next step is chosen, with those that step together; else -1."""
    worker = s.workers[number]
    first, num_workers = worker[c.W_PEERS_FIRST], worker[c.W_PEERS_NUM]
    if num_workers > 1:
        for other in range(first, first + num_workers):
            if s.lanes[s.workers[other, c.W_FIRST_LANE], c.L_IS_BUSY] > 0:
                return -1
    if worker[c.W_IS_UP] == 0 or s.worker_us[number, c.W_STAGES] > s.numbers[c.N_NOW_US]:
        return -1
    for turn in range(worker[c.W_NUM_LANES]):
        offset = (worker[c.W_NEXT_LANE] + turn) % worker[c.W_NUM_LANES]
        if s.lanes[worker[c.W_FIRST_LANE] + offset, c.L_IS_BUSY] > 0:
            continue
        num_chosen = 0
        for other in range(first, first + num_workers):
            lane = s.workers[other, c.W_FIRST_LANE] + offset
            s.lane_us[lane, c.L_CHOSEN_US] = _choose_step(s, x, other, lane)
            num_chosen += s.lane_us[lane, c.L_CHOSEN_US] >= 0.0
        if num_chosen > 0:
            return int(worker[c.W_FIRST_LANE] + offset)
    return -1


@compiled
def run_chosen(s: State, net: Network, number: int, lane: int) -> None:
    """Begin what was chosen for a lane; workers that step together all take the longest's time."""
    worker = s.workers[number]
    first, num_workers = worker[c.W_PEERS_FIRST], worker[c.W_PEERS_NUM]
    offset, longest_us = lane - worker[c.W_FIRST_LANE], s.lane_us[lane, c.L_CHOSEN_US]
    if num_workers > 1:
        longest_us = _longest_us(s, first, num_workers)
    for other in range(first, first + num_workers):
        worker = s.workers[other]
        if s.lane_us[worker[c.W_FIRST_LANE] + offset, c.L_CHOSEN_US] >= 0.0:
            _run_step(s, net, other, worker[c.W_FIRST_LANE] + offset, longest_us)
            worker[c.W_NEXT_LANE] = (offset + 1) % worker[c.W_NUM_LANES]


@compiled
def _longest_us(s: State, first: int, num_workers: int) -> float:
    all_rows, longest_us = 0, 0.0
    for number in range(first, first + num_workers):
        worker = s.workers[number]
        if s.lane_us[worker[c.W_FIRST_LANE], c.L_CHOSEN_US] >= 0.0:
            all_rows += worker[c.W_STEP_ROWS]
    for number in range(first, first + num_workers):
        worker = s.workers[number]
        time_us = s.lane_us[worker[c.W_FIRST_LANE], c.L_CHOSEN_US]
        if time_us >= 0.0:
            curves, own_rows = Packed(s.curves, worker[c.W_CURVES]), float(worker[c.W_STEP_ROWS])
            longest_us = max(longest_us, together_us(curves, time_us, own_rows, float(all_rows)))
    return float(longest_us)


@compiled
def _choose_step(s: State, x: Extras | None, number: int, lane: int) -> float:
    """What runs next, and how long it takes; below 0 where there is nothing to run."""
    worker, here = s.workers[number], s.lanes[lane]
    if here[c.L_NUM_DECODES] == 0 and worker[c.W_HEAD] == 0:
        return -1.0
    if here[c.L_NUM_DECODES] > 0:
        make_room(s, x, number, lane)
    here[c.L_NUM_CHUNKS] = 0
    num_run = choose(s, x, number, lane)
    worker[c.W_JUST_FREED] = worker[c.W_JUST_ENDED] = 0
    if num_run == 0 and here[c.L_NUM_CHUNKS] == 0:
        return -1.0
    num_seen = _seen_by(s, lane, num_run)
    return _cost_us(s, number, lane, num_run, num_seen)


@compiled
def _run_step(s: State, net: Network, number: int, lane: int, duration_us: float) -> None:
    """What was chosen occupies the stages, one after the other, and ends."""
    worker, here = s.workers[number], s.lanes[lane]
    start_us = s.numbers[c.N_NOW_US]
    end_us = _pass_stages(s, number, duration_us)
    s.worker_us[number, c.W_BUSY_US] += duration_us
    worker[c.W_NUM_STEPS] += 1
    here[c.L_IS_BUSY] = 1
    release_chunks(s, net, lane, start_us, end_us)
    overhead_us = s.worker_us[number, c.W_STEP_US]
    num_sequences = here[c.L_NUM_RUN] + here[c.L_NUM_CHUNKS]
    overhead_us += s.worker_us[number, c.W_SEQUENCE_US] * num_sequences
    s.lane_us[lane, c.L_BEGAN_US] = start_us
    s.lane_us[lane, c.L_END_US] = end_us + overhead_us
    wait_us = plan_stretch(s, number, lane, end_us + overhead_us - start_us)
    after(s, wait_us, c.E_STEP, lane, here[c.L_LIFE])
    if worker[c.W_NUM_LANES] > 1:
        wait_us = s.worker_us[number, c.W_STAGES] - start_us
        after(s, wait_us, c.E_STAGE, number, 0)


@compiled
def _seen_by(s: State, lane: int, num_run: int) -> int:
    """Tokens that the decodes of the step see; everybody else of the lane is passed over."""
    here = s.lanes[lane]
    num_decodes, num_seen = here[c.L_NUM_DECODES], here[c.L_NUM_SEEN]
    here[c.L_NUM_RUN], here[c.L_NUM_PASSED] = num_run, num_decodes - num_run
    if num_run == 0:
        return 0
    link = here[c.L_TAIL]
    for _ in range(num_decodes - num_run):
        num_seen -= pass_over(s, link - 1)
        link = s.requests[link - 1, c.R_PREVIOUS]
    here[c.L_COUNTER] += 1
    here[c.L_NUM_SEEN] += num_decodes
    return int(num_seen)


@compiled
def _cost_us(s: State, number: int, lane: int, num_run: int, num_seen: int) -> float:
    """Time of one stage. Rows of an answer that is computed again are decode rows."""
    worker, num_chunks, num_rows, longest = s.workers[number], 0, num_run, 0
    seen, total = num_seen, num_run
    for k in range(s.lanes[lane, c.L_NUM_CHUNKS]):
        request, rows = s.chunks[lane, k, 0], s.chunks[lane, k, 1]
        one = s.requests[request]
        start, end = one[c.R_COMPUTED], one[c.R_COMPUTED] + rows
        num_rows += rows
        prompt_end = end if worker[c.W_RECOMPUTES] > 0 else min(end, one[c.R_PROMPT])
        if start < prompt_end:
            s.chunk_rows[0, num_chunks] = prompt_end - start
            s.chunk_rows[1, num_chunks] = start
            num_chunks += 1
            longest = max(longest, prompt_end)
        if end > prompt_end:
            first = max(start, prompt_end)
            total += end - first
            seen += (end * (end + 1) - first * (first + 1)) // 2
    worker[c.W_NUM_ROWS] += num_rows
    worker[c.W_STEP_ROWS] = num_rows
    curves = Packed(s.curves, worker[c.W_CURVES])
    if is_outside(curves, float(num_rows), float(longest), total, float(seen)):
        worker[c.W_NUM_OUTSIDE] += 1
    return step_us(curves, s.chunk_rows[0], s.chunk_rows[1], num_chunks, total, float(seen))


@compiled
def _pass_stages(s: State, number: int, duration_us: float) -> float:
    """When the last stage is done; each stage takes one step after the other."""
    at_us = s.numbers[c.N_NOW_US]
    for stage in range(c.W_STAGES, c.W_STAGES + s.workers[number, c.W_NUM_LANES]):
        at_us = max(at_us, s.worker_us[number, stage]) + duration_us
        s.worker_us[number, stage] = at_us
    return float(at_us)


@compiled
def end_step(s: State, net: Network, x: Extras | None, lane: int) -> None:
    """Tokens are drawn, requests end, and others begin to decode."""
    here = s.lanes[lane]
    number = here[c.L_WORKER]
    if here[c.L_STRETCH] > 1:
        pass_steps(s, x, lane, here[c.L_STRETCH] - 1)
    here[c.L_IS_BUSY] = 0
    if here[c.L_NUM_RUN] > 0:
        count_gaps(s, lane, s.numbers[c.N_NOW_US])
        _end_decodes(s, x, lane, number)
    for k in range(here[c.L_NUM_CHUNKS]):
        request = s.chunks[lane, k, 0]
        if request < 0:
            continue  # its other worker died meanwhile
        one = s.requests[request]
        one[c.R_IN_STEP] = 0
        one[c.R_COMPUTED] += s.chunks[lane, k, 1]
        if one[c.R_COMPUTED] == one[c.R_PROMPT] + one[c.R_PRODUCED]:
            _end_prompt(s, net, x, number, request)
    here[c.L_NUM_CHUNKS] = 0
    if here[c.L_HELD] > 0 and here[c.L_NUM_DECODES] == 0:
        release_held(s, x, number)


@compiled
def _end_prompt(s: State, net: Network, x: Extras | None, number: int, request: int) -> None:
    one = s.requests[request]
    if one[c.R_AT_PREFILL] > 0 and one[c.R_PREFILL] != one[c.R_DECODE]:
        prompt_prefilled(s, net, x, request)
        return
    unlink(s.requests, s.workers[number], c.W_HEAD, request)
    if one[c.R_PENDING] > 0 and one[c.R_PREFILL] == one[c.R_DECODE]:
        s.request_us[request, c.R_PREFILLED_US] = s.numbers[c.N_NOW_US]
        after(s, s.numbers[c.N_CONTROL_US], c.E_KNOWN, request, one[c.R_ATTEMPT])
        s.request_us[request, c.R_PUBLISHED_US] = s.numbers[c.N_NOW_US]
        name_at_decode(s, x, number, request)
    draw_token(s, request)
    go_on(s, x, number, request)


@compiled
def _end_decodes(s: State, x: Extras | None, lane: int, number: int) -> None:
    counter = s.lanes[lane, c.L_COUNTER]
    link = s.finishing[lane, counter % s.finishing.shape[1]]
    while link > 0:
        request = link - 1
        link = s.requests[request, c.R_WHEEL_NEXT]
        if s.requests[request, c.R_FINISH] == counter:
            leave_lane(s, request)
            finish(s, x, number, request)
