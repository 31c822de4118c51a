"""The same machines with other targets: two prefill GPUs and one for decode are then too few."""

from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.distserve import FITS
from baton.planner.reproduce.r1 import gap
from baton.planner.reproduce.row import SHAPE, Row, fact_row, number_row

TARGETS_MS = ((200, 50), (250, 100))


def _run(context: Context) -> list[Row]:
    rows = []
    for ttft_ms, tpot_ms in TARGETS_MS:
        found = gap(context, ttft_ms, tpot_ms)
        phases, whole = found.ratio_of_phases, found.ratio_of_deployments
        rows += [
            fact_row(
                "r3",
                f"TTFT {ttft_ms} ms, TPOT {tpot_ms} ms: 2P+1D per GPU over colocated, phases added",
                target="below 1",
                measured=f"{phases.value:.3g}",
                met=phases.high < 1,
                tolerance="sign, with the whole interval",
                interval=f"[{phases.low:.3g}, {phases.high:.3g}], n = {phases.num}",
                why="splitting is not always better: prefill binds with two GPUs, decode idles",
                kind=SHAPE,
            ),
            number_row(
                "r3",
                f"TTFT {ttft_ms} ms, TPOT {tpot_ms} ms: three GPUs against three as deployments",
                target="-",
                measured=whole,
                why="with one queue before both prefill GPUs the split does better than its parts",
                kind=SHAPE,
            ),
        ]
    return rows


REPRODUCTION = Reproduction(
    target_id="r3",
    title="DistServe: targets under which that split loses",
    source="our own check of Figure 1's setting",
    run=_run,
    files=FITS,
)
