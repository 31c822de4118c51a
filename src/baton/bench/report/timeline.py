"""A run over time: requests in flight, tokens a second, and the TTFT of each request."""

from typing import Any

import numpy as np

from baton.bench.report.figure import (
    FAILED_COLOUR,
    MAX_POINTS,
    US_PER_MS,
    US_PER_S,
    Arms,
    Figure,
    Trace,
    colour,
    completed,
    panels,
    slo_line,
)
from baton.goodput.record import Outcome, RequestRecord
from baton.goodput.slo import SLOTargets

_NUM_BINS = 120
_TITLES = ("TTFT (ms)", "output tokens/s", "in flight")
"""From the bottom up."""


def timeline(arms: Arms, targets: SLOTargets | None = None) -> Figure:
    """Three panels over the time since the start of the run."""
    data: list[Trace] = []
    for index, (name, records) in enumerate(arms.items()):
        if records:
            data += _arm(name, colour(index), records)
    ends = [one.end_us for records in arms.values() for one in records]
    if targets and targets.ttft_us and ends:
        bound_ms = targets.ttft_us / US_PER_MS
        label = f"TTFT target {bound_ms:g} ms"
        data.append(slo_line((0, max(ends) / US_PER_S), (bound_ms, bound_ms), label, yaxis="y"))
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": "seconds since the start"}, "rangemode": "tozero"},
        "hovermode": "closest",
        "showlegend": len(arms) > 1,
    }
    for at, (title, domain) in enumerate(zip(_TITLES, panels(3, 0.05), strict=True)):
        axis = {"title": {"text": title}, "domain": domain, "rangemode": "tozero"}
        layout[f"yaxis{'' if at == 0 else at + 1}"] = axis
    layout["yaxis"] |= {"type": "log"}
    return Figure(
        name="timeline",
        title="The run over time",
        caption=(
            "In flight counts from the scheduled time to the end of the stream; a cross is a "
            "request that failed. Each TTFT stands at its request's scheduled time."
        ),
        data=data,
        layout=layout,
        height=600,
    )


def _arm(name: str, tint: str, records: list[RequestRecord]) -> list[Trace]:
    shared: Trace = {"legendgroup": name, "name": name, "showlegend": False, "type": "scatter"}
    times_s, levels = _in_flight(records)
    bins_s, rates = _token_rate(records)
    done = [one for one in completed(records) if one.ttft_us is not None]
    failed = [one for one in records if one.outcome is Outcome.FAILED]
    line: Trace = {"color": tint, "width": 1.6}
    traces: list[Trace] = [
        {"mode": "lines", "x": times_s, "y": levels, "yaxis": "y3", "line": line | {"shape": "hv"}},
        {"mode": "lines", "x": bins_s, "y": rates, "yaxis": "y2", "line": line},
        {
            "mode": "markers",
            "x": [round(one.scheduled_us / US_PER_S, 4) for one in done],
            "y": [round(max(one.ttft_us or 1, 1) / US_PER_MS, 3) for one in done],
            "yaxis": "y",
            "marker": {"color": tint, "size": 5, "opacity": 0.65},
            "text": [one.request_id for one in done],
            "hovertemplate": "%{text}<br>at %{x:.2f} s, TTFT %{y:.1f} ms<extra></extra>",
            "showlegend": True,
        },
    ]
    if failed:
        traces.append(
            {
                "mode": "markers",
                "x": [round(one.end_us / US_PER_S, 4) for one in failed],
                "y": [0] * len(failed),
                "yaxis": "y3",
                "marker": {"color": FAILED_COLOUR, "symbol": "x", "size": 8},
                "text": [f"{one.request_id}<br>{one.error[:120]}" for one in failed],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    return [shared | trace for trace in traces]


def _in_flight(records: list[RequestRecord]) -> tuple[list[float], list[int]]:
    steps = [(one.scheduled_us, 1) for one in records] + [(one.end_us, -1) for one in records]
    steps.sort()
    times = np.array([at for at, _ in steps]) / US_PER_S
    levels = np.cumsum([step for _, step in steps])
    if len(times) > 4 * MAX_POINTS:
        kept = np.unique(np.linspace(0, len(times) - 1, 4 * MAX_POINTS).round().astype(np.int64))
        times, levels = times[kept], levels[kept]
    return times.round(4).tolist(), levels.tolist()


def _token_rate(records: list[RequestRecord]) -> tuple[list[float], list[float]]:
    """Tokens by the time of their chunk; those of a request are spread evenly over its chunks."""
    times, weights = [], []
    for one in records:
        if one.token_times_us:
            share = max(one.num_output_tokens, 1) / len(one.token_times_us)
            times += list(one.token_times_us)
            weights += [share] * len(one.token_times_us)
    if not times:
        return [], []
    edges = np.linspace(0, max(times) + 1, _NUM_BINS + 1)
    tokens, _ = np.histogram(times, bins=edges, weights=weights)
    middles = (edges[:-1] + edges[1:]) / 2 / US_PER_S
    return middles.round(4).tolist(), (tokens / (edges[1] / US_PER_S)).round(2).tolist()
