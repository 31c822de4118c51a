"""The plots of a plan: attainment, goodput by rate, the frontier, the picture, sensitivity."""

from collections.abc import Sequence
from typing import Any

from baton.bench.report.figure import Figure, Trace, colour, faint, slo_line
from baton.goodput.interval import Estimate
from baton.planner.plan.result import ArmReport, FrontierPoint, PlanResult, ScalePoint, SurfaceCell

_COLOURS = {"colocated": colour(0), "split": colour(1)}
_CLOCKS = {
    "both": ("joint_met", "solid"),
    "TTFT": ("ttft_met", "dot"),
    "TPOT": ("tpot_met", "dash"),
}
_ROLE_COLOURS = {"p": colour(1), "d": colour(2), "m": colour(0)}


def _with_curves(result: PlanResult) -> list[tuple[str, ArmReport]]:
    """An arm that meets the targets at no rate has none to draw."""
    return [(name, arm) for name, arm in result.arms.items() if arm.curve]


def attainment_by_rate(result: PlanResult) -> Figure:
    """Both arms: everything at once with its band, and each clock by itself."""
    data: list[Trace] = []
    rates: list[float] = []
    for name, arm in _with_curves(result):
        found = [at.rate_per_s for at in arm.curve]
        rates += found
        data.append(_band(name, found, [at.joint_met for at in arm.curve]))
        for clock, (field, dash) in _CLOCKS.items():
            met = [getattr(at, field) for at in arm.curve]
            data.append(_line(f"{name}, {clock}", name, found, met, dash, is_wide=clock == "both"))
    if rates:
        label = f"wanted: {result.attainment:.0%}"
        data.append(slo_line((min(rates), max(rates)), (result.attainment,) * 2, label))
    return Figure(
        name="attainment",
        title="Attainment by offered rate, by clock",
        caption=(
            "Share of the judged requests that met their targets, over all seeds; the band is the "
            f"{0.95:.0%} interval of both clocks together."
        ),
        data=data,
        layout={
            "xaxis": {"title": {"text": "offered rate (requests/s)"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": "attainment"}, "range": [0, 1.03], "tickformat": ".0%"},
            "hovermode": "closest",
        },
        height=460,
    )


def goodput_by_rate(result: PlanResult) -> Figure:
    """Requests a second within both targets, over the offered rate."""
    data: list[Trace] = []
    for name, arm in _with_curves(result):
        rates = [at.rate_per_s for at in arm.curve]
        served = [at.joint_met.times(at.rate_per_s) for at in arm.curve]
        data.append(_band(name, rates, served))
        data.append(_line(name, name, rates, served, "solid", is_wide=True))
        if arm.goodput.value > 0:
            data.append(_mark(name, arm))
    return Figure(
        name="goodput",
        title="Goodput by offered rate",
        caption=(
            "Requests a second that met both targets; the diamond is the highest rate at which "
            f"{result.attainment:.0%} of the requests still do (by {result.contract}), with its "
            "interval over seeds."
        ),
        data=data,
        layout={
            "xaxis": {"title": {"text": "offered rate (requests/s)"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": "within targets (requests/s)"}, "rangemode": "tozero"},
        },
    )


def frontier_plot(points: Sequence[FrontierPoint]) -> Figure:
    """What one more GPU buys, and at what price."""
    has_price = any(point.price_per_hour is not None for point in points)
    data: list[Trace] = []
    for name in ("colocated", "split"):
        mine = sorted((one for one in points if one.kind == name), key=lambda one: one.gpus)
        if not mine:
            continue
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [one.gpus for one in mine],
                "y": [one.goodput.value for one in mine],
                "error_y": _errors([one.goodput for one in mine]),
                "text": [_frontier_text(one) for one in mine],
                "hovertemplate": "%{text}<extra></extra>",
                "line": {"color": _COLOURS[name]},
                "marker": {"size": 8},
            }
        )
    price = "; hover for the price an hour" if has_price else ""
    return Figure(
        name="frontier",
        title="GPUs against goodput",
        caption=f"The best plan of each kind on so many GPUs, with its interval{price}.",
        data=data,
        layout={
            "xaxis": {"title": {"text": "GPUs"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": "goodput (requests/s)"}, "rangemode": "tozero"},
        },
    )


def scale_plot(points: Sequence[ScalePoint]) -> Figure:
    """Who wins when both targets are tighter or looser, or all step times off by a factor."""
    data: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": [point.scale for point in points],
            "y": [getattr(point, name) for point in points],
            "line": {"color": _COLOURS[name]},
        }
        for name in ("colocated", "split")
        if any(getattr(point, name) is not None for point in points)
    ]
    return Figure(
        name="scale",
        title="Tighter and looser targets",
        caption=(
            "Goodput of the same two plans when both targets are so many times as long. Step "
            "times that are wrong by a factor move along this axis too, the other way."
        ),
        data=data,
        layout={
            "xaxis": {"title": {"text": "targets, times those asked for"}, "type": "log"},
            "yaxis": {"title": {"text": "goodput (requests/s)"}, "rangemode": "tozero"},
        },
    )


def surface_plot(cells: Sequence[SurfaceCell]) -> Figure:
    """Net margin of splitting over link bandwidth and load."""
    links = sorted({cell.link_gbytes_per_s for cell in cells})
    loads = sorted({cell.load_share for cell in cells})
    by_place = {(cell.link_gbytes_per_s, cell.load_share): cell for cell in cells}
    rows = [[by_place.get((link, load)) for link in links] for load in loads]
    return Figure(
        name="surface",
        title="Net margin of splitting",
        caption=(
            "Time that a mean request gains by splitting: interference saved, less exposed "
            "transfer, route and failures, in ms. A cross: TTFT or TPOT of the split misses its "
            "target there, so the margin does not count."
        ),
        data=[
            {
                "type": "heatmap",
                "x": [f"{link:g}" for link in links],
                "y": [f"{load:.0%}" for load in loads],
                "z": [[None if one is None else one.delta_ms for one in row] for row in rows],
                "text": [[_cell_text(one) for one in row] for row in rows],
                "texttemplate": "%{text}",
                "hovertext": [[_cell_hover(one) for one in row] for row in rows],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "colorscale": "RdBu",
                "reversescale": True,
                "zmid": 0,
                "colorbar": {"title": {"text": "ms"}},
            }
        ],
        layout={
            "xaxis": {"title": {"text": "link between nodes (GB/s)"}, "type": "category"},
            "yaxis": {"title": {"text": "load, of the better plan's goodput"}, "type": "category"},
        },
    )


def picture(name: str, arm: ArmReport) -> Figure:
    """Nodes as rows, GPUs as cells, stages as boxes over their GPUs."""
    packing = arm.packing
    shapes: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    middles: list[tuple[float, int, str]] = []
    for node, placed in enumerate(packing.nodes):
        used = 0
        for one in placed:
            tint = _ROLE_COLOURS[one.instance[0]]
            shapes.append(_box(used, node, one.num_gpus, tint))
            middle, text = used + one.num_gpus / 2, f"{one.instance}.s{one.stage}"
            labels.append(_label(middle, node, text))
            last = used + one.num_gpus - 1
            middles.append((middle, node, f"{text}: GPU {used} to {last} of node {node}"))
            used += one.num_gpus
        for gpu in range(used, packing.gpus_per_node):
            shapes.append(_box(gpu, node, 1, "#999999"))
    links = "; ".join(str(path) for path in arm.paths) or "no K/V leaves its worker"
    return Figure(
        name=f"picture-{name}",
        title=f"Where {name} stands",
        caption=(
            f"p: prefill, d: decode, m: both; a box is one pipeline stage, grey is idle. {links}."
        ),
        data=[_hovers(middles)],
        layout={
            "shapes": shapes,
            "annotations": labels,
            "xaxis": {
                "range": [-0.1, packing.gpus_per_node + 0.1],
                "title": {"text": "GPU of the node"},
                "dtick": 1,
                "showgrid": False,
            },
            "yaxis": {
                "range": [len(packing.nodes) - 0.4, -0.6],
                "tickvals": list(range(len(packing.nodes))),
                "ticktext": [f"node {number}" for number in range(len(packing.nodes))],
                "showgrid": False,
            },
        },
        height=max(160, 90 + 70 * len(packing.nodes)),
    )


def _hovers(middles: Sequence[tuple[float, int, str]]) -> Trace:
    """Nothing to see, and words under the pointer."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x for x, _, _ in middles],
        "y": [y for _, y, _ in middles],
        "text": [text for _, _, text in middles],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"opacity": 0, "size": 24},
        "showlegend": False,
    }


def _box(left: float, node: int, width: int, tint: str) -> dict[str, Any]:
    return {
        "type": "rect",
        "x0": left + 0.04,
        "x1": left + width - 0.04,
        "y0": node - 0.38,
        "y1": node + 0.38,
        "line": {"color": tint, "width": 1.5},
        "fillcolor": faint(tint, 0.22),
    }


def _label(x: float, node: int, text: str) -> dict[str, Any]:
    return {"x": x, "y": node, "text": text, "showarrow": False}


def _band(name: str, x: Sequence[float], found: Sequence[Estimate]) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*x, *reversed(x)],
        "y": [one.high for one in found] + [one.low for one in reversed(found)],
        "fill": "toself",
        "fillcolor": faint(_COLOURS[name], 0.16),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": name,
    }


def _line(
    label: str,
    name: str,
    x: Sequence[float],
    found: Sequence[Estimate],
    dash: str,
    *,
    is_wide: bool,
) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label,
        "legendgroup": name,
        "x": list(x),
        "y": [one.value for one in found],
        "text": [f"{one.low:.3g} to {one.high:.3g}" for one in found],
        "hovertemplate": "%{x:.3g}/s: %{y:.3g}<br>%{text}<extra>%{fullData.name}</extra>",
        "line": {"color": _COLOURS[name], "width": 2.4 if is_wide else 1.2, "dash": dash},
        "marker": {"size": 6 if is_wide else 4},
    }


def _mark(name: str, arm: ArmReport) -> Trace:
    goodput = arm.goodput
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name}: {goodput.value:.3g}/s",
        "legendgroup": name,
        "x": [goodput.value],
        "y": [goodput.value],
        "error_x": _errors([goodput]),
        "marker": {"symbol": "diamond", "size": 11, "color": _COLOURS[name]},
    }


def _errors(found: Sequence[Estimate]) -> dict[str, Any]:
    return {
        "type": "data",
        "array": [one.high - one.value for one in found],
        "arrayminus": [one.value - one.low for one in found],
    }


def _frontier_text(point: FrontierPoint) -> str:
    price = f", {point.price_per_hour:.4g} $/h" if point.price_per_hour is not None else ""
    return f"{point.text}: {point.goodput.value:.3g}/s on {point.gpus} GPUs{price}"


def _cell_text(cell: SurfaceCell | None) -> str:
    if cell is None:
        return ""
    return f"{cell.delta_ms:.0f}" if cell.passes else f"{cell.delta_ms:.0f} ✕"


def _cell_hover(cell: SurfaceCell | None) -> str:
    if cell is None:
        return ""
    return (
        f"{cell.delta_ms:.1f} [{cell.low_ms:.1f}, {cell.high_ms:.1f}] ms against a safety margin "
        f"of {cell.safety_ms:.1f}: saved {cell.saved_ms:.1f}, exposed {cell.exposed_ms:.1f}, "
        f"route {cell.route_ms:.1f}, failures {cell.failure_ms:.1f}"
    )
