"""TTFT against TPOT, one point a request, with the box that the targets draw."""

from typing import Any

from baton.bench.report.figure import (
    SLO_COLOUR,
    US_PER_MS,
    Arms,
    Figure,
    Trace,
    colour,
    completed,
    faint,
)
from baton.goodput.record import RequestRecord
from baton.goodput.slo import SLOTargets

_CORNERS = {
    (True, True): ("both met", 0.015, 0.02, "left", "bottom"),
    (True, False): ("TTFT only", 0.015, 0.98, "left", "top"),
    (False, True): ("TPOT only", 0.985, 0.02, "right", "bottom"),
    (False, False): ("neither", 0.985, 0.98, "right", "top"),
}
_MANY = 2000


def latency_scatter(arms: Arms, targets: SLOTargets | None = None) -> Figure:
    """Every completed request with both latencies; shares of the four quadrants if both are set."""
    data: list[Trace] = []
    points = {name: _points(records) for name, records in arms.items()}
    ttft_ms, tpot_ms = _targets_ms(targets)
    every = [point for found in points.values() for point in found]
    if every:
        data += _box(every, ttft_ms, tpot_ms)
    for index, (name, found) in enumerate(points.items()):
        data.append(_cloud(name, colour(index), found))
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": "TTFT (ms)"}, "type": "log"},
        "yaxis": {"title": {"text": "TPOT (ms)"}, "type": "log"},
        "hovermode": "closest",
        "showlegend": len(arms) > 1,
    }
    if every and ttft_ms and tpot_ms:
        layout["annotations"] = _shares(points, ttft_ms, tpot_ms)
    num_left_out = sum(map(len, arms.values())) - len(every)
    return Figure(
        name="scatter",
        title="Two clocks, one point a request",
        caption=(
            f"{len(every)} completed requests with both latencies; {num_left_out} others (failed, "
            "cancelled, or one token only) have no point. "
            + ("Shaded: inside the targets. Shares are of the points." if targets else "")
        ),
        data=data,
        layout=layout,
        height=520,
    )


Point = tuple[float, float, str]


def _points(records: list[RequestRecord]) -> list[Point]:
    return [
        (
            max(one.ttft_us, 1) / US_PER_MS,
            max(one.tpot_us, 1) / US_PER_MS,
            f"{one.request_id}<br>{one.num_prompt_tokens} in, {one.num_output_tokens} out"
            + (f"<br>{one.mode}" if one.mode else ""),
        )
        for one in completed(records)
        if one.ttft_us is not None and one.tpot_us is not None
    ]


def _targets_ms(targets: SLOTargets | None) -> tuple[float | None, float | None]:
    if targets is None:
        return None, None
    return (
        targets.ttft_us / US_PER_MS if targets.ttft_us else None,
        targets.tpot_us / US_PER_MS if targets.tpot_us else None,
    )


def _cloud(name: str, tint: str, points: list[Point]) -> Trace:
    return {
        "type": "scattergl" if len(points) > _MANY else "scatter",
        "mode": "markers",
        "name": name,
        "x": [round(x, 3) for x, _, _ in points],
        "y": [round(y, 4) for _, y, _ in points],
        "text": [text for _, _, text in points],
        "hovertemplate": "TTFT %{x:.1f} ms, TPOT %{y:.2f} ms<br>%{text}<extra></extra>",
        "marker": {"color": faint(tint, 0.6), "size": 7, "line": {"width": 0}},
    }


def _box(points: list[Point], ttft_ms: float | None, tpot_ms: float | None) -> list[Trace]:
    """The region inside the targets; a target that is not set bounds nothing."""
    if ttft_ms is None and tpot_ms is None:
        return []
    xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
    left, bottom = min(*xs, ttft_ms or xs[0]) / 1.5, min(*ys, tpot_ms or ys[0]) / 1.5
    right, top = ttft_ms or max(xs) * 1.5, tpot_ms or max(ys) * 1.5
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [left, right, right, left, left],
            "y": [bottom, bottom, top, top, bottom],
            "fill": "toself",
            "fillcolor": faint(SLO_COLOUR, 0.1),
            "line": {"color": faint(SLO_COLOUR, 0.7), "width": 1.2, "dash": "dash"},
            "hoverinfo": "skip",
            "name": "within the targets",
            "showlegend": False,
        }
    ]


def _shares(points: dict[str, list[Point]], ttft_ms: float, tpot_ms: float) -> list[Trace]:
    notes = []
    for corner, (label, x, y, xanchor, yanchor) in _CORNERS.items():
        lines = [f"<b>{label}</b>"]
        for index, (name, found) in enumerate(points.items()):
            if not found:
                continue
            inside = sum((a <= ttft_ms, b <= tpot_ms) == corner for a, b, _ in found)
            prefix = f"{name} " if len(points) > 1 else ""
            tint = colour(index)
            share = f"{inside / len(found):.1%}"
            lines.append(f'<span style="color:{tint}">{prefix}{share}</span>')
        notes.append(
            {
                "xref": "x domain",
                "yref": "y domain",
                "x": x,
                "y": y,
                "xanchor": xanchor,
                "yanchor": yanchor,
                "align": xanchor,
                "showarrow": False,
                "text": "<br>".join(lines),
            }
        )
    return notes
