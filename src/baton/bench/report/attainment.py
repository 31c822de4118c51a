"""Attainment against the offered rate, with its intervals: where an arm stops to keep up."""

from collections.abc import Mapping, Sequence
from typing import Any

from baton.bench.report.figure import SLO_COLOUR, Figure, Trace, colour, faint, slo_line
from baton.goodput.interval import Estimate
from baton.goodput.search import Probe

_DASHES = {"joint": "solid", "ttft": "dot", "tpot": "dash", "e2e": "dashdot"}
_WORDS = {"joint": "all targets", "ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def attainment_curve(arms: Mapping[str, Sequence[Probe]], target: float) -> Figure:
    """All targets at once with a band, and each target by itself, over the rates that were run."""
    data: list[Trace] = []
    rates = [probe.rate for probes in arms.values() for probe in probes]
    for index, (name, probes) in enumerate(arms.items()):
        ordered = sorted(probes, key=lambda probe: probe.rate)
        if ordered:
            data += _arm(name, colour(index), ordered, is_only=len(arms) == 1)
    if rates:
        label = f"wanted: {target:.0%}"
        data.append(slo_line((min(rates), max(rates)), (target, target), label))
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": "offered rate (requests/s)"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "attainment"}, "range": [0, 1.03], "tickformat": ".0%"},
        "hovermode": "closest",
        "showlegend": True,
        "annotations": [
            {
                "xref": "paper",
                "x": 0,
                "xanchor": "left",
                "y": target,
                "yanchor": "bottom",
                "text": f"{target:.0%} wanted",
                "showarrow": False,
                "font": {"color": SLO_COLOUR},
            }
        ],
    }
    return Figure(
        name="attainment",
        title="Attainment by offered rate",
        caption=(
            "Share of the counted requests that met their targets, each rate a run of its own. "
            "The band is the bootstrap interval of all targets together."
        ),
        data=data,
        layout=layout,
        height=440,
    )


def _arm(name: str, tint: str, probes: Sequence[Probe], *, is_only: bool) -> list[Trace]:
    rates = [probe.rate for probe in probes]
    series: dict[str, list[Estimate]] = {"joint": [probe.attainment.joint for probe in probes]}
    for phase in ("ttft", "tpot", "e2e"):
        found = [probe.attainment.phases.get(phase) for probe in probes]
        present = [one for one in found if one is not None]
        if len(present) == len(probes):
            series[phase] = present
    joint = series["joint"]
    band: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": rates + rates[::-1],
        "y": [one.high for one in joint] + [one.low for one in reversed(joint)],
        "fill": "toself",
        "fillcolor": faint(tint, 0.16),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": name,
    }
    return [band] + [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": _WORDS[key] if is_only else f"{name}, {_WORDS[key]}",
            "legendgroup": name,
            "x": rates,
            "y": [one.value for one in estimates],
            "text": [f"{one.low:.1%} to {one.high:.1%} of {one.num}" for one in estimates],
            "hovertemplate": "%{x:.3g}/s: %{y:.1%}<br>%{text}<extra></extra>",
            "line": {
                "color": tint,
                "width": 2.4 if key == "joint" else 1.2,
                "dash": _DASHES[key],
            },
            "marker": {"size": 7 if key == "joint" else 4},
        }
        for key, estimates in series.items()
    ]
