"""Many steps of the same decodes as one event, as long as nothing else happens at their worker.

Each step sees one more token of every decode, so between two knots of the curves its time grows
by as much each time, and the time of all of them has a closed form. A stretch ends with the first
request that ends; whoever comes to the worker before settles it: the steps that are over by then
have happened, and the one under way ends as any other.
"""

from baton.compiled import compiled
from baton.hardware.evaluate import Packed, is_outside, step_us, steps_to_knot
from baton.sim.fast import columns as c
from baton.sim.fast.decodes import grow
from baton.sim.fast.events import after
from baton.sim.fast.extras import Extras
from baton.sim.fast.gaps import count_gap, count_run
from baton.sim.fast.kept import note_peak, take_blocks
from baton.sim.fast.state import State

_ROUNDING = 1e-9


@compiled
def plan_stretch(s: State, number: int, lane: int, step_and_overhead_us: float) -> float:
    """How long the step that begins and its successors take together."""
    worker, here = s.workers[number], s.lanes[lane]
    num_steps, more_us = 1, 0.0
    if _may_stretch(s, number, lane):
        num_steps = _num_steps(s, number, lane)
        num_steps, more_us = _straight(s, number, lane, num_steps)
    here[c.L_STRETCH] = num_steps
    s.lane_us[lane, c.L_EACH_US], s.lane_us[lane, c.L_MORE_US] = step_and_overhead_us, more_us
    worker[c.W_PROMISED] = _num_promised(s, number, lane)
    return time_of(s, lane, num_steps)


@compiled
def _may_stretch(s: State, number: int, lane: int) -> bool:
    worker, here = s.workers[number], s.lanes[lane]
    if here[c.L_NUM_CHUNKS] > 0 or here[c.L_NUM_PASSED] > 0:
        return False
    if worker[c.W_PEERS_NUM] > 1 or worker[c.W_NUM_LANES] > 1 or worker[c.W_LOOKS_AHEAD] > 0:
        return False
    ignores_prompts = worker[c.W_POLICY] == c.DECODE_FIRST or worker[c.W_POLICY] == c.STATIC
    return bool(ignores_prompts or worker[c.W_HEAD] == 0)


@compiled
def _num_steps(s: State, number: int, lane: int) -> int:
    """Up to the next end, the next knot, and as far as there are blocks for sure."""
    worker, here = s.workers[number], s.lanes[lane]
    counter, size, num_decodes = here[c.L_COUNTER], s.finishing.shape[1], here[c.L_NUM_DECODES]
    most, found = 1, False
    while not found and most < size:
        link = s.finishing[lane, (counter + most - 1) % size]
        while link > 0:
            found = found or s.requests[link - 1, c.R_FINISH] == counter + most - 1
            link = s.requests[link - 1, c.R_WHEEL_NEXT]
        most += 0 if found else 1
    # Each decode needs a block at most every block size, and one at once.
    num_turns = worker[c.W_FREE] // num_decodes
    most = min(most, max(1, (num_turns - 1) * worker[c.W_BLOCK_SIZE] + 1))
    num_seen = here[c.L_NUM_SEEN] - num_decodes
    until = steps_to_knot(Packed(s.curves, worker[c.W_CURVES]), num_decodes, float(num_seen))
    return int(max(1.0, min(float(most), until)))


@compiled
def _straight(s: State, number: int, lane: int, num_steps: int) -> tuple[int, float]:
    """Steps that grow by as much each time, and by how much."""
    here, rows = s.lanes[lane], s.chunk_rows[0]
    curves, num_decodes = Packed(s.curves, s.workers[number, c.W_CURVES]), here[c.L_NUM_DECODES]
    num_seen = float(here[c.L_NUM_SEEN] - num_decodes)
    first_us = s.lane_us[lane, c.L_CHOSEN_US]
    while num_steps > 1:
        middle, last = (num_steps - 1) // 2, num_steps - 1
        last_us = step_us(curves, rows, rows, 0, num_decodes, num_seen + last * num_decodes)
        more_us = (last_us - first_us) / last
        if middle == 0:
            return num_steps, more_us
        middle_us = step_us(curves, rows, rows, 0, num_decodes, num_seen + middle * num_decodes)
        # Convex: it is straight if its middle is where a straight one's is.
        if abs(first_us + middle * more_us - middle_us) <= _ROUNDING * last_us:
            return num_steps, more_us
        num_steps //= 2
    return 1, 0.0


@compiled
def _num_promised(s: State, number: int, lane: int) -> int:
    """Blocks that the rest of a stretch may need, at most."""
    here = s.lanes[lane]
    if here[c.L_STRETCH] <= 1:
        return 0
    num_turns = (here[c.L_STRETCH] - 1) // s.workers[number, c.W_BLOCK_SIZE] + 1
    return int(here[c.L_NUM_DECODES] * num_turns)


@compiled
def time_of(s: State, lane: int, num_steps: int) -> float:
    """Of the first steps of a stretch, from its begin on."""
    each_us, more_us = s.lane_us[lane, c.L_EACH_US], s.lane_us[lane, c.L_MORE_US]
    return float(num_steps * each_us + more_us * (0.5 * num_steps * (num_steps - 1)))


@compiled
def num_over(s: State, lane: int) -> int:
    """Steps of a stretch that are over by now, its last one never.

    One that ends now is: its end was set before whatever happens now.
    """
    most = s.lanes[lane, c.L_STRETCH] - 1
    if most <= 0:
        return 0
    passed_us = s.numbers[c.N_NOW_US] - s.lane_us[lane, c.L_BEGAN_US]
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if time_of(s, lane, middle) <= passed_us:
            low = middle
        else:
            high = middle - 1
    return int(low)


@compiled
def pass_steps(s: State, x: Extras | None, lane: int, num_steps: int) -> None:
    """So many steps of a stretch are over; the next one is under way."""
    here, number = s.lanes[lane], s.lanes[lane, c.L_WORKER]
    each_us, more_us = s.lane_us[lane, c.L_EACH_US], s.lane_us[lane, c.L_MORE_US]
    worker, num_decodes = s.workers[number], here[c.L_NUM_DECODES]
    count_gaps(s, lane, s.lane_us[lane, c.L_BEGAN_US] + each_us)
    count_run(s.gaps, each_us + more_us, more_us, num_steps - 1, num_decodes)
    s.lane_us[lane, c.L_BEGAN_US] += time_of(s, lane, num_steps)
    s.lane_us[lane, c.L_TOKEN_US] = s.lane_us[lane, c.L_BEGAN_US]
    curves = Packed(s.curves, worker[c.W_CURVES])
    num_seen = float(here[c.L_NUM_SEEN])
    if is_outside(curves, float(num_decodes), 0.0, num_decodes, num_seen):
        worker[c.W_NUM_OUTSIDE] += num_steps
    first_us = s.lane_us[lane, c.L_CHOSEN_US]
    grown_us = more_us * (0.5 * num_steps * (num_steps + 1))
    s.worker_us[number, c.W_BUSY_US] += num_steps * first_us + grown_us
    for _ in range(num_steps):
        grow(s, lane)
        here[c.L_COUNTER] += 1
    here[c.L_NUM_SEEN] += num_steps * num_decodes
    worker[c.W_NUM_STEPS] += num_steps
    worker[c.W_NUM_ROWS] += num_steps * num_decodes
    here[c.L_STRETCH] -= num_steps
    s.lane_us[lane, c.L_EACH_US] += num_steps * more_us
    s.lane_us[lane, c.L_CHOSEN_US] += num_steps * more_us
    s.lane_us[lane, c.L_END_US] = s.lane_us[lane, c.L_BEGAN_US] + s.lane_us[lane, c.L_EACH_US]
    note_peak(s, x, number)
    worker[c.W_PROMISED] = _num_promised(s, number, lane)


@compiled
def settle(s: State, x: Extras | None, number: int) -> None:
    """Something is about to change at a worker: only the step under way is fixed."""
    lane = s.workers[number, c.W_FIRST_LANE]
    here = s.lanes[lane]
    if here[c.L_IS_BUSY] == 0 or here[c.L_STRETCH] <= 1:
        return
    num_steps = num_over(s, lane)
    if num_steps > 0:
        pass_steps(s, x, lane, num_steps)
    here[c.L_STRETCH], s.workers[number, c.W_PROMISED] = 1, 0
    here[c.L_LIFE] += 1
    s.lane_us[lane, c.L_END_US] = s.lane_us[lane, c.L_BEGAN_US] + s.lane_us[lane, c.L_EACH_US]
    wait_us = s.lane_us[lane, c.L_END_US] - s.numbers[c.N_NOW_US]
    after(s, max(0.0, wait_us), c.E_STEP, lane, here[c.L_LIFE])


@compiled
def take_beside(s: State, x: Extras | None, number: int, num_blocks: int) -> bool:
    """Blocks of a worker that may be in a stretch, which is settled where they run short."""
    worker = s.workers[number]
    if worker[c.W_PROMISED] > 0 and num_blocks + worker[c.W_PROMISED] > worker[c.W_FREE]:
        settle(s, x, number)
    return take_blocks(s, x, number, num_blocks)


@compiled
def settle_all(s: State, x: Extras | None, now_us: float) -> None:
    """For a look at everything before the end."""
    s.numbers[c.N_NOW_US] = max(s.numbers[c.N_NOW_US], now_us)
    for number in range(s.workers.shape[0]):
        settle(s, x, number)


@compiled
def count_gaps(s: State, lane: int, now_us: float) -> None:
    """Those that ran in the last step with decodes too waited alike; the others stand last."""
    here = s.lanes[lane]
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
