"""Names of the columns of the fast host's arrays: R of a request, W of a worker, L of a lane.

A lane is what runs one step after another: a worker has one for each of its pipeline stages.
Links between rows are index + 1, so that 0 is nobody.
"""

# Requests: times.
(
    R_ARRIVAL_US,
    R_FIRST_US,
    R_LAST_US,
    R_START_US,
    R_PREFILLED_US,
    R_MOVED_US,
    R_TOKEN_US,
    R_PUBLISHED_US,
    R_NOTICED_US,
    R_DUE_US,
) = range(10)
"""R_TOKEN_US is when its latest token was drawn, at its worker; R_NOTICED_US when its router saw
it."""
NUM_R_TIMES = 10

# Requests: numbers.
(
    R_PROMPT,
    R_OUTPUT,
    R_BOUND,
    R_END,
    R_PHASE,
    R_PRODUCED,
    R_COMPUTED,
    R_CACHED,
    R_MOVED,
    R_PREEMPTED,
    R_PREFILL,
    R_DECODE,
    R_ATTEMPT,
    R_LANE,
    R_BASE,
    R_FINISH,
    R_GROW,
    R_JOINED,
    R_BLOCKS,
    R_SOURCE_BLOCKS,
    R_NEXT,
    R_PREVIOUS,
    R_WHEEL_NEXT,
    R_WHEEL_PREVIOUS,
    R_ORDER,
    R_STARTED,
    R_IN_STEP,
    R_FLOW,
    R_PENDING,
    R_ACCOUNT,
    R_AT_PREFILL,
    R_NEEDS_MOVE,
    R_KEPT,
    R_KEPT_MARK,
    R_CHAIN,
    R_CHAINED,
    R_SOURCE_CHAIN,
    R_SOURCE_CHAINED,
    R_REUSED,
    R_PAIRS,
    R_TOKENS,
    R_FETCH,
    R_FETCH_BLOCKS,
    R_FETCH_CHAIN,
    R_OPEN_NEXT,
    R_OPEN_PREVIOUS,
    R_IS_OPEN,
    R_FETCH_FOUND,
    R_FETCH_OWNER,
    R_OWNER_CHAIN,
) = range(50)
NUM_R_NUMBERS = 50
"""R_BOUND is the longest answer that its client lets through, the only thing that policies know of
R_OUTPUT. R_BASE: tokens less the lane's counter; it leaves at the counter R_FINISH, and needs its
first block beyond R_BLOCKS at R_GROW. R_PENDING and R_ACCOUNT are what the router has on its
accounts for it: rows at its prefill worker, blocks at its decode worker. R_KEPT: whole blocks that
it gave back when it was preempted; the last one is lost once W_TAKEN is beyond R_KEPT_MARK.
R_CHAIN and R_CHAINED: the prefix that it shares at its decode worker, and how many hash blocks of
it; R_SOURCE_... at its prefill worker. R_REUSED: prompt rows that its route expects to be there."""

# Where a request is.
AWAY, WAITING, FETCHING, ROUTED, QUEUED, MOVING, DECODING, ENDED = range(8)
"""Not here yet; at the router; there, while a prefix is copied for it; between router and worker;
among a worker's prompts; its K/V is under way; in a lane; over."""

# Workers: times.
W_BUSY_US, W_STEP_US, W_SEQUENCE_US, W_DOWN_UNTIL_US, W_STAGES = range(5)
"""Stages, from W_STAGES on, are free again at these times."""

# Workers: numbers.
(
    W_ROLE,
    W_CURVES,
    W_POLICY,
    W_NUM_BLOCKS,
    W_FREE,
    W_BLOCK_SIZE,
    W_MAX_TOKENS,
    W_MAX_SEQS,
    W_MAX_ADMITTED,
    W_GROWTH,
    W_GRID,
    W_MAX_PREEMPTIONS,
    W_RESERVES_WHOLE,
    W_HEAD,
    W_TAIL,
    W_NEXT_LANE,
    W_NUM_SHORT,
    W_PENDING,
    W_ACTIVE,
    W_ACCOUNT,
    W_IS_FULL,
    W_IS_UP,
    W_FIRST_LANE,
    W_NUM_LANES,
    W_NUM_STEPS,
    W_NUM_OUTSIDE,
    W_NUM_ROWS,
    W_PEAK_BLOCKS,
    W_NUM_ORDERS,
    W_KICK,
    W_KEEPS,
    W_PROMISED,
    W_LOOKS_AHEAD,
    W_RECOMPUTES,
    W_PEERS_FIRST,
    W_PEERS_NUM,
    W_STEP_ROWS,
    W_IS_CLOSED,
    W_TAKEN,
    W_KEEPS_PREEMPTED,
    W_RESERVED,
    W_PER_HASH,
    W_PAIRS,
    W_TOKENS,
    W_IS_MIXED,
    W_NUM_DOWN,
    W_QUEUES,
    W_JUST_FREED,
    W_JUST_ENDED,
) = range(49)
NUM_W_NUMBERS = 49
"""W_PENDING, W_ACTIVE and W_ACCOUNT are the router's own account of tokens, requests and blocks.
W_NUM_SHORT preempted requests wait for blocks, which nobody new may take. W_RECOMPUTES: rows of a
preempted answer are prompt rows. W_PEERS_FIRST, W_PEERS_NUM: the workers that step together with
it. W_STEP_ROWS: of the step that was chosen last. W_IS_CLOSED: nothing new is routed here, whatever
it has goes on. W_TAKEN: blocks that were ever taken, those of the longest unused first.
W_RESERVED: prompts and longest answers of its decodes. W_QUEUES: prompts wait here for their
blocks. W_JUST_FREED, W_JUST_ENDED: blocks and requests of the step that has just ended: a step
that was chosen before its end does not know that they are gone. W_PER_HASH: blocks of a hash block,
0 where none is kept. W_PAIRS, W_TOKENS: causal pairs that wait, and tokens that decode here or
will, by the router's account. W_IS_MIXED: it serves the other phase too, borrowed. W_NUM_DOWN:
failures that are not over."""

# Roles.
PREFILL, DECODE, MIXED = range(3)

# Lanes: times.
L_TOKEN_US, L_BEGAN_US, L_END_US, L_CHOSEN_US, L_EACH_US, L_MORE_US = range(6)
NUM_L_TIMES = 6
"""L_TOKEN_US is when its latest step with decodes ended, L_BEGAN_US and L_END_US when its latest
step began and ends. L_CHOSEN_US: how long the chosen step would take alone; below 0 for none.
L_EACH_US: a step of the stretch under way, with overheads; the next one takes L_MORE_US more."""

# Lanes: numbers.
(
    L_WORKER,
    L_NUM_DECODES,
    L_NUM_SEEN,
    L_COUNTER,
    L_IS_BUSY,
    L_NUM_RUN,
    L_NUM_CHUNKS,
    L_HEAD,
    L_TAIL,
    L_NUM_PASSED,
    L_HELD,
    L_RESERVED,
    L_LIFE,
    L_GROWN,
    L_STRETCH,
) = range(15)
NUM_L_NUMBERS = 15
"""L_NUM_SEEN: tokens of all its decodes. L_COUNTER: steps with decodes that were begun.
L_NUM_RUN and L_NUM_CHUNKS: rows and chunks of the step that is under way. L_GROWN: blocks are
taken for every counter below it."""

# Batch policies.
(
    SARATHI_SERVE,
    SARATHI,
    TOKEN_BUDGET,
    PREFILL_FIRST,
    DECODE_FIRST,
    PHASE_PURE,
    ORCA,
    STATIC,
    WHOLE_HYBRID,
) = range(9)
POLICY_CODES = {
    "sarathi_serve": SARATHI_SERVE,
    "sarathi": SARATHI,
    "token_budget": TOKEN_BUDGET,
    "prefill_first": PREFILL_FIRST,
    "decode_first": DECODE_FIRST,
    "phase_pure": PHASE_PURE,
    "orca": ORCA,
    "static": STATIC,
    "whole_hybrid": WHOLE_HYBRID,
}

# Events.
(
    E_STEP,
    E_STAGE,
    E_RESERVE,
    E_PREFILL,
    E_PUBLISH,
    E_RELEASE,
    E_ROUTER,
    E_KNOWN,
    E_DONE,
    E_DENIED,
    E_FETCHED,
    E_HEARTBEAT,
    E_AGAIN,
    E_DOWN,
    E_UP,
) = range(15)
"""A step ends, a first stage is free. At a worker: a request asks for room to decode, its prompt
comes, its K/V is complete, its other copy may go. At the router, from E_ROUTER on: a request
arrives, its prompt is known to be computed, its end, a denial, a prefix that was copied. From
E_HEARTBEAT on: a worker tells how it is, who waits is to be routed, a worker dies, or lives."""

# Events: columns.
V_SEQUENCE, V_KIND, V_ID, V_ATTEMPT = range(4)

# Real numbers of the whole simulation.
(
    N_NOW_US,
    N_DURATION_US,
    N_CONTROL_US,
    N_IN_US,
    N_OUT_US,
    N_LATENCY_US,
    N_TOKEN_NBYTES,
    N_HEARTBEAT_US,
    N_TTFT_SLO_US,
    N_TPOT_SLO_US,
) = range(10)
NUM_N = 10

# Counts of the whole simulation.
(
    C_NUM_EVENTS,
    C_SEQUENCE,
    C_HEAP,
    C_ARRIVED,
    C_NUM_OPEN,
    C_ROUTER_HEAD,
    C_ROUTER_TAIL,
    C_ROUTER_NUM,
    C_NUM_LAYERS,
    C_IS_LAYERED,
    C_ONLY_MISSING,
    C_MAX_WAITING,
    C_STATUS,
    C_PREEMPTIONS,
    C_DENIED,
    C_RESTARTED,
    C_LOST_STEPS,
    C_MARGIN,
    C_PER_HASH,
    C_ROUTE,
    C_NUM_ENDS,
    C_NUM_RUNNING,
    C_OPEN_HEAD,
    C_OPEN_TAIL,
    C_MISSED_TTFT,
    C_MISSED_TPOT,
    C_FETCHED,
    C_SPILL,
    C_BORROWED,
    C_RETURNED,
    C_SOURCE,
    C_TARGET,
    C_REUSED,
) = range(33)
NUM_C = 33
COUNTERS = {
    "preemptions": C_PREEMPTIONS,
    "denied_reservations": C_DENIED,
    "restarted": C_RESTARTED,
    "lost_steps": C_LOST_STEPS,
    "rejected_ttft": C_MISSED_TTFT,
    "rejected_tpot": C_MISSED_TPOT,
    "fetched_tokens": C_FETCHED,
    "borrowed": C_BORROWED,
    "returned": C_RETURNED,
}
"""What is reported by name."""

# Why the loop returned.
DONE, STOPPED, HEAP_FULL, WORKER_CHANGED = range(4)

# What is to be done after an event, where it is not a worker's number.
NOTHING, ROUTE = -1, -2

# What comes next.
STOPS, FLOWS, HAPPENS, ARRIVES = range(4)
