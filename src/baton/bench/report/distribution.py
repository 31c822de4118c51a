"""Cumulative distributions of the three latencies, side by side on log axes."""

from typing import Any

import numpy as np

from baton.bench.report.figure import (
    MAX_POINTS,
    US_PER_MS,
    Arms,
    Figure,
    Trace,
    colour,
    panels,
    slo_line,
)
from baton.goodput.percentiles import latencies_us
from baton.goodput.slo import SLOTargets

_PANELS = {"ttft": "TTFT (ms)", "tpot": "TPOT (ms)", "itl": "ITL (ms)"}
_LEAST_MS = 0.001


def latency_cdfs(arms: Arms, targets: SLOTargets | None = None) -> Figure:
    """TTFT, TPOT and ITL of completed requests; an ITL is judged by the TPOT target's line."""
    bounds_us = {"ttft": targets and targets.ttft_us, "tpot": targets and targets.tpot_us}
    data: list[Trace] = []
    layout: dict[str, Any] = {"hovermode": "closest", "showlegend": len(arms) > 1}
    found = {name: latencies_us(records) for name, records in arms.items()}
    for at, (key, title) in enumerate(_PANELS.items()):
        suffix = "" if at == 0 else str(at + 1)
        place = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        for index, (name, latencies) in enumerate(found.items()):
            data.append(_curve(name, colour(index), latencies[key], first=at == 0) | place)
        if bound_us := bounds_us.get(key):
            bound_ms = bound_us / US_PER_MS
            data.append(slo_line((bound_ms, bound_ms), (0, 1), f"target {bound_ms:g} ms", **place))
        layout[f"xaxis{suffix}"] = {
            "title": {"text": title},
            "type": "log",
            "domain": panels(len(_PANELS))[at],
            "anchor": f"y{suffix}",
        }
        layout[f"yaxis{suffix}"] = {
            "range": [0, 1.02],
            "tickformat": ".0%",
            "anchor": f"x{suffix}",
        }
    layout["yaxis"]["title"] = {"text": "share at or below"}
    return Figure(
        name="cdf",
        title="Distributions",
        caption=(
            "Completed requests. TTFT from the scheduled time to the first content token; TPOT the "
            "mean time per token after the first; ITL the gaps between chunks of all requests."
        ),
        data=data,
        layout=layout,
        height=360,
    )


def _curve(name: str, tint: str, values_us: list[float], *, first: bool) -> Trace:
    values = np.sort(np.asarray(values_us, dtype=np.float64)) / US_PER_MS
    shares = np.arange(1, len(values) + 1) / max(len(values), 1)
    if len(values) > MAX_POINTS:
        kept = np.unique(np.linspace(0, len(values) - 1, MAX_POINTS).round().astype(np.int64))
        values, shares = values[kept], shares[kept]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "legendgroup": name,
        "showlegend": first,
        "x": np.maximum(values, _LEAST_MS).round(4).tolist(),
        "y": shares.round(5).tolist(),
        "line": {"color": tint, "width": 2, "shape": "hv"},
        "hovertemplate": "%{y:.1%} within %{x:.2f} ms<extra></extra>",
    }
