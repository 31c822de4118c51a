"""Figures of several arms: what they show, and that Plotly takes them."""

import re

import msgspec
import plotly.graph_objects as go
import pytest

from baton.bench.report import (
    Section,
    Table,
    attainment_curve,
    latency_cdfs,
    latency_scatter,
    timeline,
    write_report,
)
from baton.bench.report.page import render_report
from baton.errors import ConfigError
from baton.goodput.attainment import judge
from baton.goodput.record import Outcome, RequestRecord
from baton.goodput.search import Probe
from baton.goodput.slo import SLOTargets

TARGETS = SLOTargets(ttft_us=100_000, tpot_us=10_000)


def record(index, ttft_ms, tpot_ms, outcome=Outcome.COMPLETED):
    at = index * 50_000
    first = at + ttft_ms * 1000
    times = tuple(first + step * tpot_ms * 1000 for step in range(5))
    return RequestRecord(
        request_id=f"r{index}",
        scheduled_us=at,
        sent_us=at,
        token_times_us=times,
        end_us=times[-1],
        num_prompt_tokens=10,
        num_output_tokens=5,
        outcome=outcome,
        error="" if outcome is Outcome.COMPLETED else "timeout: late",
    )


FAST = [record(index, 50, 5) for index in range(4)]
MIXED = [
    record(0, 50, 5),
    record(1, 50, 20),
    record(2, 200, 5),
    record(3, 200, 20),
    record(4, 50, 5, Outcome.FAILED),
]
ARMS = {"fast": FAST, "mixed": MIXED}


def figures(arms):
    probes = {
        name: [Probe(rate=rate, attainment=judge(records, TARGETS)) for rate in (4.0, 2.0)]
        for name, records in arms.items()
    }
    return [
        latency_scatter(arms, TARGETS),
        latency_cdfs(arms, TARGETS),
        timeline(arms, TARGETS),
        attainment_curve(probes, 0.9),
    ]


@pytest.mark.parametrize("arms", [ARMS, {"fast": FAST}, {"none": []}])
def test_plotly_takes_every_figure(arms):
    made = figures(arms) if all(arms.values()) else [latency_scatter(arms), timeline(arms)]
    for figure in made:
        go.Figure(data=figure.data, layout=figure.layout)


def test_quadrants_are_shares_of_the_points_of_each_arm():
    figure = latency_scatter(ARMS, TARGETS)
    shares = {
        note["text"].split("</b>")[0].removeprefix("<b>"): re.findall(
            r"(\w+) ([\d.]+%)", note["text"]
        )
        for note in figure.layout["annotations"]
    }
    assert shares["both met"] == [("fast", "100.0%"), ("mixed", "25.0%")]
    assert shares["neither"] == [("fast", "0.0%"), ("mixed", "25.0%")]
    assert "8 completed requests" in figure.caption and "1 others" in figure.caption


def test_the_box_of_the_targets_ends_at_the_targets():
    box = latency_scatter(ARMS, TARGETS).data[0]
    assert max(box["x"]) == 100 and max(box["y"]) == 10
    assert min(box["x"]) < 50 and min(box["y"]) < 5


def test_distributions_reach_all_and_long_ones_are_thinned():
    many = [record(index, 10 + index % 90, 5) for index in range(3000)]
    figure = latency_cdfs({"many": many}, TARGETS)
    ttft = next(trace for trace in figure.data if trace.get("xaxis") == "x")
    assert len(ttft["x"]) <= 500
    assert ttft["x"] == sorted(ttft["x"]) and ttft["x"][0] == 10 and ttft["x"][-1] == 99
    assert ttft["y"][-1] == 1


def test_the_timeline_counts_requests_and_tokens_and_marks_failures():
    traces = timeline({"mixed": MIXED}, TARGETS).data
    levels = next(one for one in traces if one.get("yaxis") == "y3" and one["mode"] == "lines")
    assert max(levels["y"]) >= 2 and levels["y"][-1] == 0
    rate = next(one for one in traces if one.get("yaxis") == "y2")
    width_s = rate["x"][1] - rate["x"][0]
    assert sum(rate["y"]) * width_s == pytest.approx(25, rel=0.02)
    crosses = next(one for one in traces if one.get("marker", {}).get("symbol") == "x")
    assert len(crosses["x"]) == 1


def test_the_curve_is_sorted_by_rate_with_its_band():
    figure = figures(ARMS)[3]
    joint = next(one for one in figure.data if one.get("name") == "mixed, all targets")
    assert joint["x"] == [2.0, 4.0] and joint["y"] == [0.2, 0.2]
    bands = [one for one in figure.data if one.get("fill") == "toself"]
    assert len(bands) == 2


def test_words_of_a_page_cannot_become_markup(tmp_path):
    evil = "</script><b>x"
    table = Table(columns=("a", evil), rows=((evil, "1"),))
    figure = latency_scatter({evil: FAST})
    path = tmp_path / "page.html"
    write_report(path, evil, evil, [Section(text=evil, tables=(table,), figures=(figure,))])
    page = path.read_text()
    assert evil not in page
    data = re.search(r'id="plots">(.*?)</script>', page, re.S).group(1)
    assert msgspec.json.decode(data)["figure-0-0"]["data"][0]["name"] == evil


def test_a_page_without_figures_carries_no_library():
    assert len(render_report("t", "h", [Section(text="words")])) < 20_000


def test_a_page_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        write_report(tmp_path / "no" / "page.html", "t", "h", [])
