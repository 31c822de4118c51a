"""Every exported name parses, has a type and a definition; dashboards use no other ones."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from baton.runtime.gateway.choice import UsageTotal
from baton.runtime.gateway.metrics import GatewayMetrics
from baton.telemetry.exposition import render_metrics
from baton.telemetry.live.story_metrics import StoryMetrics
from tests.stage import Stage, uneven_plan

ROOT = Path(__file__).parents[3]
DOCS = (ROOT / "docs" / "metrics.md").read_text()
DASHBOARD = ROOT / "deploy" / "grafana" / "baton.json"
RULES = ROOT / "deploy" / "prometheus" / "baton-rules.yml"
OBSERVABILITY = {
    "pd_route_total by policy, topology, result": "baton_pd_route",
    "kv_transfer_bytes": "baton_kv_transfer_bytes",
    "exposed transfer time": "baton_kv_exposed_transfer_seconds",
    "open leases": "baton_open_leases",
    "transfer attempts, completion, timeout, retry, failure": "baton_kv_transfers",
    "stale or duplicate publication rejects": "baton_publications_rejected",
    "capability denials by reason": "baton_capability_denials",
    "attainment by workload cell": "baton_slo_met",
    "its denominator": "baton_slo_requests",
    "fallback, recompute, reroute": "baton_fallback",
    "why attempts failed": "baton_failed_attempts",
    "drain depth": "baton_drain_depth",
    "rollback duration": "baton_rollback_seconds",
}
"""The specification's list (0x0FF), and the family of each."""
_NAME = re.compile(r"\b(?:baton|vllm):?_?[a-z][a-z0-9_]*(?::[a-z0-9_]+)*")


def every_family() -> dict[str, str]:
    """Name without suffix and type of whatever /metrics can show."""
    gateway = GatewayMetrics("m")
    usage = UsageTotal(prompt_tokens=1, completion_tokens=1, cached_tokens=0)
    gateway.count_request(usage, 0.1)
    stage = Stage(uneven_plan())
    stage.submit("r", 33)
    stage.serve()
    stage.settle(2_000_000)
    text = gateway.render() + render_metrics(stage.world.router) + StoryMetrics().render()
    return {f.name: f.type for f in text_string_to_metric_families(text.decode())}


@pytest.fixture(scope="module")
def families() -> dict[str, str]:
    return every_family()


def test_every_family_has_a_type_and_a_definition(families):
    assert len(families) > 50
    for name, kind in families.items():
        assert kind in ("counter", "gauge", "histogram"), name
        short = name.removeprefix("baton_").removeprefix("vllm:")
        assert name in DOCS or f"`{short}" in DOCS, f"{name} is not defined in docs/metrics.md"
        assert name.startswith(("baton_", "vllm:")), name


@pytest.mark.parametrize("name", OBSERVABILITY.values(), ids=OBSERVABILITY)
def test_the_observability_list_is_exported(families, name):
    assert name in families


def test_the_labels_of_the_list_are_those_that_it_names():
    stage = Stage(uneven_plan())
    stage.submit("r", 33)
    stage.serve()
    stage.settle(2_000_000)
    text = render_metrics(stage.world.router).decode()
    samples = {f.name: f.samples for f in text_string_to_metric_families(text)}
    (route,) = samples["baton_pd_route"]
    assert set(route.labels) == {"policy", "topology", "result"}
    outcomes = {sample.labels["outcome"] for sample in samples["baton_kv_transfers"]}
    assert {"attempted", "completed", "timeout", "aborted", "move_failed"} <= outcomes
    reasons = {sample.labels["reason"] for sample in samples["baton_publications_rejected"]}
    assert reasons == {"stale", "duplicate"}


def test_no_name_is_exported_twice():
    stage = Stage(uneven_plan())
    text = GatewayMetrics("m").render() + render_metrics(stage.world.router)
    text += StoryMetrics().render()
    names = re.findall(r"^# TYPE (\S+)", text.decode(), re.MULTILINE)
    assert len(names) == len(set(names))


def known(name: str, families: dict[str, str]) -> bool:
    bare = re.sub(r"_(?:total|bucket|sum|count)$", "", name)
    if name.endswith(("_bucket", "_sum", "_count")):
        return families.get(bare) == "histogram"
    return bare in families and (families[bare] == "counter") == name.endswith("_total")


def test_every_expression_of_the_dashboard_is_of_exported_names(families):
    board = json.loads(DASHBOARD.read_text())
    assert board["title"] == "Baton" and board["uid"] and "id" not in board
    targets = [t for panel in board["panels"] for t in panel.get("targets", ())]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(targets) > 25 and len(ids) == len(set(ids))
    for target in targets:
        names = _NAME.findall(target["expr"])
        assert names and all(known(name, families) for name in names), target["expr"]
        assert target["datasource"]["uid"] == "${datasource}"
    assert [v["name"] for v in board["templating"]["list"]] == ["datasource"]


def test_no_two_panels_of_the_dashboard_lie_on_each_other():
    taken = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_every_alert_is_of_exported_names_and_says_what_to_do(families):
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    alerts = [rule for rule in rules if "alert" in rule]
    assert len(alerts) >= 8
    for rule in rules:
        names = _NAME.findall(rule["expr"])
        assert names and all(known(name, families) for name in names), rule["expr"]
    for alert in alerts:
        assert {"summary", "description"} <= set(alert["annotations"])
        assert alert["labels"]["severity"] in ("warning", "critical")


def test_the_checker_of_expressions_refuses_what_is_not_exported(families):
    assert known("baton_pd_route_total", families)
    assert not known("baton_pd_route", families) and not known("baton_invented_total", families)
    assert not known("baton_drain_depth_bucket", families)
