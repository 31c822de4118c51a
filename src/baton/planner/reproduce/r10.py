"""Splitwise's design space: the cheapest HH cluster for 70 requests of code a second."""

from baton.planner.provision.fleet import Fleet
from baton.planner.provision.space import staircase
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.row import Row, fact_row
from baton.planner.reproduce.splitwise import FILES, MEASURED, PUBLISHED, SHORT_S, told

RATE, MOST = 70.0, 39
NUM_PROMPT, NUM_TOKEN = 27, 3
TOTAL_TOLERANCE, MOST_TOKEN = 3, 5


def _run(context: Context) -> list[Row]:
    return [_row(context, reading) for reading in (PUBLISHED, MEASURED)]


def _row(context: Context, reading: str) -> Row:
    prober = told(context, "code", reading, SHORT_S)
    walk = staircase(prober, "h100", "h100", RATE, context.seeds, MOST)
    best = min(walk.corners, key=lambda fleet: fleet.num_machines, default=None)
    total = NUM_PROMPT + NUM_TOKEN
    is_met = best is not None and (
        abs(best.num_machines - total) <= TOTAL_TOLERANCE and best.num_token <= MOST_TOKEN
    )
    corners = ", ".join(_name(fleet) for fleet in walk.corners)
    return fact_row(
        "r10",
        f"cheapest HH for {RATE:g}/s of code, decode {reading}",
        target=f"{NUM_PROMPT}P, {NUM_TOKEN}T",
        tolerance=f"{total} +- {TOTAL_TOLERANCE} machines, at most {MOST_TOKEN}T",
        measured=_name(best) if best else f"none up to {MOST} + {MOST}",
        interval=f"every one of {len(context.seeds)} seeds passes",
        met=is_met if reading == PUBLISHED else None,
        why=f"edge of what serves: {corners}; {walk.statement()}",
    )


def _name(fleet: Fleet) -> str:
    return f"{fleet.num_prompt}P, {fleet.num_token}T"


REPRODUCTION = Reproduction(
    target_id="r10",
    title="Splitwise: design space of HH, code, 70 requests/s",
    source="Splitwise (ISCA'24), Figure 16 and its text; BLOOM-176B, 2-minute trace",
    run=_run,
    files=FILES,
)
