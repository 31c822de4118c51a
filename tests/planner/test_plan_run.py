"""`baton plan` from end to end: the answer, its page, its deployments, and the same again."""

import json
import re
from html.parser import HTMLParser

import msgspec
import pytest
from tests.planner.plans import TARGETS, write_trace
from tests.policy.profiles import make_profile
from typer.testing import CliRunner

from baton.bench.plan.figures import attainment_by_rate, goodput_by_rate, scale_plot
from baton.cli import app
from baton.config import load_config
from baton.errors import ConfigError
from baton.planner.plan.blueprints import blueprint_of
from baton.planner.plan.inputs import load_inputs
from baton.planner.plan.question import Question
from baton.planner.plan.result import PlanResult
from baton.planner.plan.run import STAGES, Watch, make_plan
from baton.planner.plan.verdict import Outcome
from baton.profile_file import save_profile

graph_objects = pytest.importorskip(
    "plotly.graph_objects", reason="the extra `plan` is not installed"
)
pytest.importorskip("kubernetes_validate", reason="the extra `plan` is not installed")


def run(*words):
    return CliRunner().invoke(app, ["plan", *map(str, words)], catch_exceptions=True)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """One plan of a small model on a part of a node, with every output."""
    folder = tmp_path_factory.mktemp("plan")
    trace = write_trace(folder / "trace.csv")
    result = run(
        *("--trace", trace, "--model", "Llama-3.1-8B", "--system", "h100_sxm", "--gpus", 2),
        *(
            "--ttft",
            "300",
            "--tpot",
            "12ms",
            "--seeds",
            "0,1,2",
            "--requests",
            300,
            "--explain",
            "--controller",
        ),
        *("--html", folder / "plan.html", "--json", folder / "plan.json"),
        *("--out-dir", folder / "out"),
    )
    assert result.exit_code == 0, result.output
    return folder, result.output


def test_the_sentence_ends_the_answer_and_both_arms_stand_beside_each_other(planned):
    folder, output = planned
    found = json.loads((folder / "plan.json").read_text())
    assert found["verdict"]["sentence"] in " ".join(output.split())
    for word in ("colocated", "split", "goodput per GPU", "binding clock", "residency", "margin"):
        assert word in output
    assert found["colocated"]["goodput"]["value"] > 0 < found["split"]["goodput"]["value"]


def test_figures_are_consistent(planned):
    found = json.loads((planned[0] / "plan.json").read_text())
    for arm in (found["colocated"], found["split"]):
        assert arm["num_gpus"] <= found["gpus"] == 2
        assert arm["per_gpu"]["value"] == pytest.approx(arm["goodput"]["value"] / arm["num_gpus"])
        for at in [arm["at"], *arm["curve"]]:
            marginals = at["ttft_met"]["value"], at["tpot_met"]["value"]
            assert at["joint_met"]["value"] <= min(marginals) + 1e-12
        assert arm["at"]["passes"], "the table's shares are those that the goodput was found with"
        assert min(arm["at"][clock]["value"] for clock in ("ttft_met", "tpot_met")) >= 0.9
        rates = [at["rate_per_s"] for at in arm["curve"]]
        assert rates == sorted(rates)
        first, last = arm["curve"][0], arm["curve"][-1]
        assert first["joint_met"]["value"] > last["joint_met"]["value"]
    scales = [point["split"] for point in found["scales"]]
    assert scales == sorted(scales)
    assert found["split"]["at"]["moved_nbytes_per_s"] > 0 == found["colocated"]["at"]["exposed_ms"]
    assert len(found["surface"]) == 24
    sent = sum(
        path["demand_bytes_per_s"]
        for path in found["split"]["paths"]
        if not path["link"].startswith("into")
    )
    assert sent == pytest.approx(found["split"]["at"]["moved_nbytes_per_s"]), "one rate, told once"


def test_the_controller_stands_beside_the_planned_counts(planned):
    _, output = planned
    assert re.search(r"planned, static \dP\+\dD +\d+\.\d\d", output)
    assert re.search(r"controller +\d+\.\d\d", output)


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.fetched = [], [], []

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_the_page_is_one_whole_file_with_the_numbers_of_the_result(planned):
    folder, _ = planned
    text = (folder / "plan.html").read_text()
    found = json.loads((folder / "plan.json").read_text())
    tags = _Tags()
    tags.feed(text)
    assert tags.open == tags.wrong == tags.fetched == []
    block = re.search(r'id="plots">(.*?)</script>', text, re.DOTALL)[1]
    plots = json.loads(block.replace("<\\/", "</"))
    for plot in plots.values():  # every property is one that Plotly knows, with a value it takes
        graph_objects.Figure(data=plot["data"], layout=plot["layout"])
        assert plot["data"], plot["layout"]
        for trace in plot["data"]:
            values = list(trace["z"]) if trace["type"] == "heatmap" else [trace["y"]]
            assert any(value is not None for row in values for value in row), trace.get("name")
        for axis in ("xaxis", "yaxis"):
            assert plot["layout"][axis].keys() & {"title", "ticktext"}, "says what it counts"
    assert not re.search(r"<(?:script|link|img)[^>]* (?:src|href)=", text), "works without network"
    drawn = {trace.get("name") for plot in plots.values() for trace in plot["data"]}
    assert {"colocated", "split", "split, both", "colocated, TTFT"} <= drawn
    for name in ("colocated", "split"):
        goodput = found[name]["goodput"]["value"]
        diamonds = [
            trace["x"]
            for plot in plots.values()
            for trace in plot["data"]
            if trace.get("name") == f"{name}: {goodput:.3g}/s"
        ]
        assert diamonds == [[goodput]]
    boxes = [shape for plot in plots.values() for shape in plot["layout"].get("shapes", ())]
    assert len(boxes) >= sum(len(found[name]["packing"]["nodes"][0]) for name in ("split",))
    heat = next(t for plot in plots.values() for t in plot["data"] if t["type"] == "heatmap")
    assert [len(row) for row in heat["z"]] == [6] * 4


def test_deployments_of_both_arms_are_ready(planned):
    folder, _ = planned
    found = json.loads((folder / "plan.json").read_text())
    split_first = found["verdict"]["outcome"] == Outcome.SPLIT.value
    for name, is_split in (("winner", split_first), ("runner-up", not split_first)):
        place = folder / "out" / name
        config = load_config(place / "baton.toml")
        assert (config.cluster.mixed == 0) == is_split
        assert found["verdict"]["sentence"] in (place / "README.md").read_text()
        assert (place / "kubernetes.yaml").exists() and (place / "proxy.py").exists()
        scripts = "".join(one.read_text() for one in place.glob("vllm-node-*.sh"))
        assert scripts.count("vllm serve Llama-3.1-8B") == len(config.cluster.roles)


def test_every_number_is_explained(planned):
    _, output = planned
    flat = " ".join(output.split())
    for name in ("weights of one copy", "K/V of one token", "step times", "split: goodput"):
        assert name in flat
    assert "8030261248 parameters" in flat
    assert "Student" in flat and "seeds 0, 1, 2" in flat


def profiled(tmp_path, **changed):
    save_profile(make_profile(), tmp_path / "profile.json")
    trace = write_trace(tmp_path / "short.csv", num=150, prompt=60, output=6, sigma=0.3)
    given = {
        "trace": trace,
        "targets": msgspec.structs.replace(TARGETS, ttft_us=2_000_000, tpot_us=150_000),
        "gpus": 2,
        "profile": tmp_path / "profile.json",
        "seeds": (0, 1, 2),
        "num_requests": 120,
    }
    return load_inputs(Question(**{**given, **changed}))


def test_equal_questions_get_equal_answers_on_this_machines_own_profile(tmp_path):
    inputs = profiled(tmp_path)
    stages = []
    first = make_plan(inputs, Watch(stage=lambda number, name: stages.append(name)))
    assert stages == list(STAGES)
    assert msgspec.json.encode(make_plan(inputs).result) == msgspec.json.encode(first.result)
    assert first.result.provenance.predictor == "profile"
    assert "steps that its fit has not seen" in first.result.provenance.error
    for arm in (first.winner, first.runner_up):
        blueprint = blueprint_of(arm)
        assert len(blueprint.stages) == sum(p.num_workers * p.parallel.pp for p in blueprint.pools)
        assert len({(s.node, g) for s in blueprint.stages for g in s.gpus}) == blueprint.num_gpus


def test_targets_that_nothing_meets_name_the_clock_and_the_closest_plan(tmp_path):
    tight = msgspec.structs.replace(TARGETS, ttft_us=2_000_000, tpot_us=5_000)
    found = make_plan(profiled(tmp_path, targets=tight))
    verdict = found.result.verdict
    assert verdict.outcome is Outcome.NOTHING and verdict.binding == "tpot"
    assert re.search(
        r"TPOT binds; closest is .* which needs \d+\.?\d* ms for 90% of", verdict.sentence
    )
    assert found.winner is not None and found.runner_up is not None


def test_a_rate_is_judged_as_it_was_asked(tmp_path):
    found = make_plan(profiled(tmp_path, rate_per_s=0.2)).result
    assert [arm.at.rate_per_s for arm in found.arms.values()] == [0.2, 0.2]
    assert all(arm.at.passes for arm in found.arms.values())
    lots = make_plan(profiled(tmp_path, rate_per_s=500.0)).result
    assert lots.verdict.outcome is Outcome.NOTHING
    assert re.search(r"at most \d+ GPUs of it would do", lots.verdict.sentence)


def test_runs_too_short_to_overload_anything_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"120 requests at twice .* give --requests more than 120"
    ):
        make_plan(profiled(tmp_path, gpus=6))


def test_a_rate_is_served_on_as_few_gpus_as_do(tmp_path):
    whole = make_plan(profiled(tmp_path, gpus=4, num_requests=600)).result
    rate = 0.4 * min(arm.goodput.value for arm in whole.arms.values())
    found = make_plan(profiled(tmp_path, gpus=4, rate_per_s=rate, num_requests=600)).result
    for name, arm in found.arms.items():
        assert arm.at.passes and arm.num_gpus < whole.arms[name].num_gpus
        assert arm.goodput.high >= rate
    names = sorted(found.arms, key=lambda name: found.arms[name].num_gpus)
    least, most = (found.arms[name].num_gpus for name in names)
    assert f"serves {rate:g} requests/s" in found.verdict.sentence
    assert f"on {least} GPUs" in found.verdict.sentence
    if least < most:
        assert found.verdict.outcome.value.startswith(names[0][:5])
    fewer = profiled(tmp_path, gpus=max(2, least - 1), rate_per_s=rate, num_requests=600)
    if least > 2:
        assert make_plan(fewer).result.verdict.outcome is Outcome.NOTHING


def test_requests_that_fit_nowhere_are_named_as_such(tmp_path):
    found = make_plan(profiled(tmp_path, kv_tokens=64)).result
    assert found.verdict.binding == "memory"
    assert re.search(
        r"K/V memory binds, no clock does: \d+ of 150 requests, up to \d+ tokens, are longer than "
        r"the 64 tokens that the largest instance \(TP1 PP1\) holds",
        found.verdict.sentence,
    )
    assert {arm.binding for arm in found.arms.values()} == {"memory"}


def test_a_trace_with_prefixes_that_is_too_short_says_how_many_it_takes(tmp_path):
    lines = [
        json.dumps(
            {
                "timestamp": at * 300,
                "input_length": 600,
                "output_length": 20,
                "hash_ids": [at, 99 + at],
            }
        )
        for at in range(1, 40)
    ]
    (tmp_path / "few.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match=r"too short: it has 39 requests, \d+ requests for each"):
        make_plan(profiled(tmp_path, trace=tmp_path / "few.jsonl", num_requests=None))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ttft", "soon"), "--ttft 'soon'"),
        (("--requests", 3), "--requests 3: at least 50"),
        (("--seeds", "1,2"), "--seeds '1,2': at least 3"),
        (("--contract", "both"), "--contract 'both': use one of phases, joint"),
        (("--arrivals", "random"), "--arrivals 'random': use one of"),
        (("--html", "/nowhere/x.html"), "--html /nowhere/x.html cannot be written"),
    ],
)
def test_bad_flags_are_named(tmp_path, words, message):
    given = {
        "--trace": write_trace(tmp_path / "t.csv", num=9),
        "--model": "Llama-3.1-8B",
        "--system": "h100_sxm",
        "--gpus": 2,
        "--ttft": "300",
        "--tpot": "20",
    }
    given[words[0]] = words[1]
    result = run(*(word for pair in given.items() for word in pair))
    assert isinstance(result.exception, ConfigError) and message in str(result.exception)


def test_a_missing_library_is_told_before_the_search(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run(
        *("--trace", write_trace(tmp_path / "t.csv", num=9), "--model", "Llama-3.1-8B"),
        *("--system", "h100_sxm", "--gpus", 2, "--ttft", 300, "--tpot", 20),
        *("--out-dir", tmp_path / "out"),
    )
    assert isinstance(result.exception, ConfigError)
    assert "--out-dir needs kubernetes_validate" in str(result.exception)
    assert "install kvbaton[plan]" in str(result.exception)


def test_an_arm_without_figures_is_not_drawn(planned):
    found = msgspec.json.decode((planned[0] / "plan.json").read_bytes(), type=PlanResult)
    alone = msgspec.structs.replace(
        found,
        split=msgspec.structs.replace(found.split, curve=()),
        scales=tuple(msgspec.structs.replace(one, split=None) for one in found.scales),
    )
    for figure in (attainment_by_rate(alone), goodput_by_rate(alone), scale_plot(alone.scales)):
        assert figure.data and all(trace["y"] for trace in figure.data), figure.name
        assert not any(str(trace.get("name")).startswith("split") for trace in figure.data)
