"""Splitwise at equal throughput: HHcap saves power and AA cost, against H100s for both phases."""

from collections.abc import Callable

from baton.planner.provision.fleet import Fleet
from baton.planner.provision.service import Service
from baton.planner.provision.space import smallest_mixed, staircase
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.row import Row, fact_row, number_row
from baton.planner.reproduce.splitwise import FILES, MEASURED, PUBLISHED, SHORT_S, told

RATE = 70.0
SAVED, TOLERANCE = 25.0, 7.0
MOST = {"a100": 139, "h100": 79}
CASES = (
    ("HHcap", "h100", "h100cap", "power"),
    ("AA", "a100", "a100", "cost"),
)


def _run(context: Context) -> list[Row]:
    return [_row(context, reading, *case) for reading in (PUBLISHED, MEASURED) for case in CASES]


def _row(context: Context, reading: str, name: str, prompt: str, token: str, what: str) -> Row:
    prober = told(context, "code", reading, SHORT_S)
    seeds, service = context.seeds, prober.service
    base = smallest_mixed(prober, "h100", RATE, seeds, MOST["h100"])
    walk = staircase(prober, prompt, token, RATE, seeds, MOST[prompt])
    spent = _spent(service, what)
    best = min(walk.corners, key=spent, default=None)
    said = f"{name} saves {what} over H100s for both, {RATE:g}/s of code, decode {reading}"
    if best is None or base is None:
        return fact_row(
            "r11",
            said,
            target=f"{SAVED:g} %",
            measured="no such cluster serves it",
            met=False if reading == PUBLISHED else None,
            why=f"{base} and {best} up to {MOST}",
        )
    saved = 100 * (1 - spent(best) / spent(base))
    is_judged = reading == PUBLISHED
    return number_row(
        "r11",
        said,
        target=f"{SAVED:g} %",
        measured=saved,
        low=SAVED - TOLERANCE if is_judged else None,
        high=SAVED + TOLERANCE if is_judged else None,
        unit="%",
        why=f"{best} against {base}, every seed of {len(seeds)} passes; {walk.statement()}",
    )


def _spent(service: Service, what: str) -> Callable[[Fleet], float]:
    return service.power if what == "power" else service.cost


REPRODUCTION = Reproduction(
    target_id="r11",
    title="Splitwise: iso-throughput, code, 70 requests/s",
    source="Splitwise (ISCA'24), Figure 20 and its text; BLOOM-176B, 2-minute trace",
    run=_run,
    files=FILES,
)
