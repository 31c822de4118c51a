"""What is exported parses as Prometheus text, tells the truth, and is defined in the docs."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from baton.telemetry.exposition import render_metrics
from tests.nodes.test_copies import COLD, start, warm_stage
from tests.stage import Stage, uneven_plan

DOCS = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def exported(stage: Stage | None = None) -> dict[str, list]:
    if stage is None:
        stage = Stage(uneven_plan())
        stage.submit("r", 33)
    stage.serve()
    stage.settle(2_000_000)
    text = render_metrics(stage.world.router).decode()
    return {f.name: f.samples for f in text_string_to_metric_families(text)}


def test_every_exported_name_is_defined_in_the_docs():
    families = exported()
    assert len(families) >= 12
    for name in families:
        assert name.removesuffix("_total") in DOCS, name


def test_values_are_those_of_the_run():
    families = exported()
    routes = families["baton_pd_route"]
    assert [(s.labels["result"], s.value) for s in routes] == [("disaggregated", 1.0)]
    moved = {
        s.labels["ledger"]: s.value
        for s in families["baton_kv_transfer_bytes"]
        if s.labels["worker"] == "decode-1"
    }
    # 33 rows of 3 layers, 1 head of 1 float, K and V; 9 blocks of 4 move whole.
    assert moved["logical"] == 33 * 3 * 2 * 4
    assert moved["padding"] == 3 * 3 * 2 * 4
    assert moved["duplicate"] == moved["framing"] == 0
    blocks = {(s.labels["worker"], s.labels["state"]): s.value for s in families["baton_kv_blocks"]}
    for worker in ("prefill-0", "decode-1"):
        held = blocks[worker, "total"] - blocks[worker, "free"] - blocks[worker, "cached"]
        assert held == blocks[worker, "quarantined"] == blocks[worker, "reserved"] == 0
        assert blocks[worker, "cached"] == 8


def test_copies_have_an_account_of_their_own():
    stage = warm_stage()
    handed = {s.labels["worker"]: s.value for s in logical(stage, "baton_kv_transfer_bytes")}
    start(stage, "decode-2", COLD)
    stage.until(lambda: not stage.world.router.copies)
    copied = {s.labels["worker"]: s.value for s in logical(stage, "baton_cache_copied_bytes")}
    assert copied == {COLD: 16 * 3 * 2 * 4}
    after = {s.labels["worker"]: s.value for s in logical(stage, "baton_kv_transfer_bytes")}
    assert after == handed and handed["decode-2"] == 18 * 3 * 2 * 4
    assert stage.world.marks()["handoffs"] == 1


def logical(stage: Stage, name: str) -> list:
    return [s for s in exported(stage)[name] if s.labels["ledger"] == "logical"]


def test_open_leases_are_seen_while_they_are_open_and_attempts_are_counted():
    stage = Stage(uneven_plan())
    stage.submit("r", 33)
    stage.until(lambda: stage.traced("chunk_visible"))
    worker = stage.destination
    assert len(worker.node.destination.leases) == 1, "half of it has moved"
    shot = worker.node.snapshot()
    assert (shot.source_leases, shot.destination_leases) == (0, 1)
    assert stage.source.node.snapshot().source_leases == 1
    families = exported(stage)
    leases = {
        (s.labels["worker"], s.labels["side"]): s.value for s in families["baton_open_leases"]
    }
    assert set(leases.values()) == {0.0} and len(leases) == 4, "none is left when all is served"
    counts = {
        s.labels["outcome"]: s.value
        for s in families["baton_kv_transfers"]
        if s.labels["worker"] == "decode-1"
    }
    assert (counts["attempted"], counts["completed"], counts["aborted"]) == (1.0, 1.0, 0.0)


def test_a_route_says_how_far_apart_its_workers_are():
    alone = Stage(uneven_plan("mixed"))
    alone.submit("r", 33)
    for stage, result, topology in (
        (alone, "colocated", "worker"),
        (None, "disaggregated", "host"),
    ):
        (sample,) = exported(stage)["baton_pd_route"]
        assert (sample.labels["result"], sample.labels["topology"]) == (result, topology)
        assert sample.value == 1.0 and sample.labels["policy"]
