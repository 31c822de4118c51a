"""Steps of a lane: begun when its worker's first stage is free, ended when its last one is done."""

from baton.compiled import compiled
from baton.hardware.evaluate import Packed, is_outside, step_us, together_us
from baton.sim.fast import columns as c
from baton.sim.fast.choices import choose
from baton.sim.fast.decodes import leave_lane, pass_over
from baton.sim.fast.ends import draw_token, finish, go_on, release_held
from baton.sim.fast.events import after
from baton.sim.fast.extras import Extras
from baton.sim.fast.gaps import count_gap
from baton.sim.fast.handoff import prompt_prefilled, release_chunks
from baton.sim.fast.kept import name_at_decode
from baton.sim.fast.memory import make_room
from baton.sim.fast.network_state import Network
from baton.sim.fast.queues import unlink
from baton.sim.fast.state import State


@compiled
def kick(s: State, net: Network, x: Extras | None, number: int) -> None:
    """Begin whatever steps this worker can begin now."""
    worker = s.workers[number]
    first, num_workers = worker[c.W_PEERS_FIRST], worker[c.W_PEERS_NUM]
    for other in range(first, first + num_workers):
        if num_workers > 1 and s.lanes[s.workers[other, c.W_FIRST_LANE], c.L_IS_BUSY] > 0:
            return
    num_lanes, turn = worker[c.W_NUM_LANES], worker[c.W_NEXT_LANE]
    for k in range(num_lanes):
        if worker[c.W_IS_UP] == 0 or s.worker_us[number, c.W_STAGES] > s.numbers[c.N_NOW_US]:
            return
        offset = (turn + k) % num_lanes
        if s.lanes[worker[c.W_FIRST_LANE] + offset, c.L_IS_BUSY] == 0:
            _begin_steps(s, net, x, first, num_workers, offset)


@compiled
def _begin_steps(
    s: State, net: Network, x: Extras | None, first: int, num_workers: int, offset: int
) -> None:
    """One of each worker that has work, all as long as the longest of theirs."""
    all_rows = 0
    for number in range(first, first + num_workers):
        lane = s.workers[number, c.W_FIRST_LANE] + offset
        s.lane_us[lane, c.L_CHOSEN_US] = _choose_step(s, x, number, lane)
        if s.lane_us[lane, c.L_CHOSEN_US] >= 0.0:
            all_rows += s.workers[number, c.W_STEP_ROWS]
    longest_us = 0.0
    for number in range(first, first + num_workers):
        worker = s.workers[number]
        time_us = s.lane_us[worker[c.W_FIRST_LANE] + offset, c.L_CHOSEN_US]
        if time_us >= 0.0 and num_workers > 1:
            curves, own_rows = Packed(s.curves, worker[c.W_CURVES]), float(worker[c.W_STEP_ROWS])
            time_us = together_us(curves, time_us, own_rows, float(all_rows))
        longest_us = max(longest_us, time_us)
    for number in range(first, first + num_workers):
        worker = s.workers[number]
        lane = worker[c.W_FIRST_LANE] + offset
        if s.lane_us[lane, c.L_CHOSEN_US] >= 0.0:
            _run_step(s, net, number, lane, longest_us)
            worker[c.W_NEXT_LANE] = (offset + 1) % worker[c.W_NUM_LANES]


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
    after(s, end_us + overhead_us - start_us, c.E_STEP, lane, worker[c.W_LIFE])
    if worker[c.W_NUM_LANES] > 1:
        wait_us = s.worker_us[number, c.W_STAGES] - start_us
        after(s, wait_us, c.E_STAGE, number, worker[c.W_LIFE])


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
    here[c.L_IS_BUSY] = 0
    if here[c.L_NUM_RUN] > 0:
        _count_gaps(s, lane)
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
def _count_gaps(s: State, lane: int) -> None:
    """Those that ran in the last step with decodes too waited alike; the others stand last."""
    here, now_us = s.lanes[lane], s.numbers[c.N_NOW_US]
    counter, num_old = here[c.L_COUNTER], here[c.L_NUM_RUN]
    link = here[c.L_TAIL]
    while link > 0 and s.requests[link - 1, c.R_JOINED] >= counter - 1:
        if s.requests[link - 1, c.R_JOINED] == counter - 1:
            num_old -= 1
            count_gap(s.gaps, now_us - s.request_us[link - 1, c.R_TOKEN_US], 1)
        link = s.requests[link - 1, c.R_PREVIOUS]
    if num_old > 0:
        count_gap(s.gaps, now_us - s.lane_us[lane, c.L_TOKEN_US], num_old)
    s.lane_us[lane, c.L_TOKEN_US] = now_us


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
