"""The plots that only a race has: goodput beside each other, margins, gaps, the crossover."""

from collections.abc import Mapping, Sequence

import numpy as np

from baton.bench.race.result import Prediction
from baton.bench.race.standing import Margin, Standing
from baton.bench.race.streams import StreamGaps
from baton.bench.report.figure import FAILED_COLOUR, MAX_POINTS, Figure, Trace, colour


def goodput_bars(standings: Sequence[Standing], titles: Mapping[str, str]) -> Figure:
    """Goodput per core of every arm, a group for each workload."""
    names = list(standings[0].per_core)
    data: list[Trace] = []
    for index, standing in enumerate(standings):
        cores = [standing.per_core[name] for name in names]
        data.append(
            {
                "type": "bar",
                "name": standing.contest,
                "x": [titles[name] for name in names],
                "y": [core.value for core in cores],
                "marker": {"color": colour(index)},
                "error_y": {
                    "type": "data",
                    "array": [core.high - core.value for core in cores],
                    "arrayminus": [core.value - core.low for core in cores],
                },
                "hovertemplate": "%{x}: %{y:.3f}/s per core<extra>%{fullData.name}</extra>",
            }
        )
    return Figure(
        name="goodput",
        title="Goodput per core",
        caption="Requests a second that meet both clocks, over the cores; 95 % intervals.",
        data=data,
        layout={"barmode": "group", "yaxis": {"title": {"text": "requests/s per core"}}},
    )


def margin_waterfall(margin: Margin) -> Figure:
    """The net margin of one rate taken apart."""
    parts = margin.verdict.margin
    steps = {
        "interference saved": parts.interference_saved_us,
        "transfer exposed": -parts.exposed_transfer_us,
        "route": -parts.route_delta_us,
        "failures": -parts.failure_penalty_us,
    }
    return Figure(
        name="margin",
        title=f"Net margin at {margin.rate:.2f} requests/s",
        caption=(
            f"Mean time a request gains against {margin.rival}, in ms. Outside of it: prompts wait "
            f"and compute {margin.prefill_delta_us / 1e3:.0f} ms longer on fewer cores."
        ),
        data=[
            {
                "type": "waterfall",
                "x": [*steps, "net margin"],
                "y": [*(us / 1e3 for us in steps.values()), 0],
                "measure": ["relative"] * len(steps) + ["total"],
                "increasing": {"marker": {"color": colour(2)}},
                "decreasing": {"marker": {"color": FAILED_COLOUR}},
                "totals": {"marker": {"color": colour(0)}},
            }
        ],
        layout={"yaxis": {"title": {"text": "ms a request"}}, "showlegend": False},
    )


def scale_curves(standing: Standing, titles: Mapping[str, str]) -> Figure:
    """X4: goodput as the TPOT target tightens or loosens."""
    scales = [point.tpot_scale for point in standing.scales]
    data: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": titles[name],
            "x": scales,
            "y": [point.goodputs[name] for point in standing.scales],
            "line": {"color": colour(index)},
        }
        for index, name in enumerate(standing.curves)
    ]
    return Figure(
        name="scale",
        title="Who wins at which TPOT target",
        caption="The same measurements judged by other TPOT targets; 1 is the one raced for.",
        data=data,
        layout={
            "xaxis": {"title": {"text": "TPOT target, times the raced one"}, "type": "log"},
            "yaxis": {"title": {"text": "goodput, requests/s"}},
        },
    )


def gap_curves(streams: Sequence[StreamGaps]) -> Figure:
    """Share of gaps above a length, on log axes: the tail is what a reader feels."""
    data: list[Trace] = []
    for index, arm in enumerate(dict.fromkeys(one.arm for one in streams)):
        gaps = np.sort([gap / 1e3 for one in streams if one.arm == arm for gap in one.gaps_us])
        above = 1 - np.arange(len(gaps)) / len(gaps)
        kept = np.unique(np.linspace(0, len(gaps) - 1, MAX_POINTS).round().astype(int))
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": arm,
                "x": gaps[kept].round(2).tolist(),
                "y": above[kept].round(5).tolist(),
                "line": {"color": colour(index), "shape": "hv"},
            }
        )
    return Figure(
        name="gaps",
        title="What a burst of long prompts does to live streams",
        caption="Share of the gaps between tokens that are longer than this.",
        data=data,
        layout={
            "xaxis": {"title": {"text": "gap between tokens (ms)"}, "type": "log"},
            "yaxis": {"title": {"text": "share of gaps above"}, "type": "log"},
        },
    )


def prediction_cloud(predictions: Sequence[Prediction]) -> Figure:
    """Simulated against measured attainment, one point for each arm and rate."""
    data: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [0, 1],
            "y": [0, 1],
            "line": {"dash": "dot", "width": 1, "color": "#888888"},
            "showlegend": False,
            "hoverinfo": "skip",
        }
    ]
    for index, arm in enumerate(dict.fromkeys(one.arm for one in predictions)):
        mine = [one for one in predictions if one.arm == arm]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": arm,
                "x": [one.measured for one in mine],
                "y": [one.predicted for one in mine],
                "text": [f"{one.contest} at {one.rate:.2f}/s" for one in mine],
                "marker": {"color": colour(index), "size": 9},
            }
        )
    return Figure(
        name="prediction",
        title="The simulated host against the machine",
        caption="Joint attainment of the same requests; on the line both agree.",
        data=data,
        layout={
            "xaxis": {"title": {"text": "measured"}, "tickformat": ".0%"},
            "yaxis": {"title": {"text": "simulated"}, "tickformat": ".0%"},
        },
    )
