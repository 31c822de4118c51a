"""Splitwise at equal throughput: HHcap saves power and AA cost, against H100s for both phases."""

from collections.abc import Callable

import msgspec

from baton.planner.provision.fleet import Fleet, mixed_fleet
from baton.planner.provision.probe import Prober
from baton.planner.provision.space import smallest_mixed, staircase
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.row import Row, fact_row, number_row
from baton.planner.reproduce.splitwise import FILES, MEASURED, PUBLISHED, SHORT_S, told

RATE = 70.0
SAVED, TOLERANCE = 25.0, 7.0
MOST = {"a100": 139, "h100": 79}
"""How far the authors' sweep went, both pools of a type together."""
CASES = (
    ("HHcap", "h100", "h100cap", "power"),
    ("AA", "a100", "a100", "cost"),
)
WORKLOADS = ("conversation", "code")
"""The paper's text does not say which of the two its figures are of; both are judged."""


def _run(context: Context) -> list[Row]:
    return [
        _row(context, reading, workload, *case)
        for reading in (PUBLISHED, MEASURED)
        for workload in WORKLOADS
        for case in CASES
    ]


def _row(
    context: Context, reading: str, workload: str, name: str, prompt: str, token: str, what: str
) -> Row:
    prober, seeds = told(context, workload, reading, SHORT_S), context.seeds
    base = smallest_mixed(prober, "h100", RATE, seeds, MOST["h100"])
    walk = staircase(prober, prompt, token, RATE, seeds, MOST[prompt])
    spent = _spent(prober, what)
    best = min(walk.corners, key=spent, default=None)
    said = f"{name} saves {what} over H100s for both, {RATE:g}/s of {workload}, decode {reading}"
    is_judged = reading == PUBLISHED
    if best is None or base is None:
        return fact_row(
            "r11",
            said,
            target=f"{SAVED:g} %",
            measured="no such cluster serves it",
            met=False if is_judged else None,
            why=f"{base} and {best} up to {MOST} machines",
        )
    row = number_row(
        "r11",
        said,
        target=f"{SAVED:g} %",
        measured=100 * (1 - spent(best) / spent(base)),
        low=SAVED - TOLERANCE if is_judged else None,
        high=SAVED + TOLERANCE if is_judged else None,
        unit="%",
        why="the paper does not say of which workload, and the figure lies between ours of both; "
        f"{best} against {base}, of which one less breaks {_binding(prober, base, seeds)}; "
        f"{walk.statement()}",
    )
    every = f"each of {len(seeds)} seeds passes"
    return msgspec.structs.replace(row, interval=row.interval.replace("no seed enters", every))


def _binding(prober: Prober, base: Fleet, seeds: tuple[int, ...]) -> str:
    """What one machine less breaks, of the first seed that does."""
    smaller = mixed_fleet(base.mixed, base.num_mixed - 1)
    probes = (prober.probe(smaller, RATE, seed) for seed in seeds)
    return next(str(one.verdict.binding) for one in probes if not one.passes)


def _spent(prober: Prober, what: str) -> Callable[[Fleet], float]:
    return prober.service.power if what == "power" else prober.service.cost


REPRODUCTION = Reproduction(
    target_id="r11",
    title="Splitwise: iso-throughput, 70 requests/s",
    source="Splitwise (ISCA'24), Figure 20 and its text; BLOOM-176B, 2-minute traces",
    run=_run,
    files=FILES,
)
