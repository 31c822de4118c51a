"""`bench-sim`: traces, scaling of peers, verdicts; and one small scene for real."""

import json

import msgspec
import pytest
from tests.data import DATA

from baton.bench.sim import __main__ as command
from baton.bench.sim import child
from baton.bench.sim.anchors import PLACES, Anchors
from baton.bench.sim.duel import Duel
from baton.bench.sim.dynamo import Dynamo, _workers
from baton.bench.sim.limit import Limit
from baton.bench.sim.outcome import Outcome, PeerOutcome
from baton.bench.sim.result import PlacementTime, Result
from baton.bench.sim.scenes import ALONE, DUELS, find_scene
from baton.bench.sim.traces import write_trace
from baton.errors import ConfigError


def outcome(seconds: float, peak_nbytes: int = 1 << 20) -> Outcome:
    return Outcome(
        num_requests=1000,
        num_completed=1000,
        loops_s=[seconds],
        load_s=0.1,
        ready_s=0.2,
        num_events=50_000,
        num_rows=100_000,
        mean_ttft_ms=1.0,
        p99_ttft_ms=2.0,
        mean_tpot_ms=3.0,
        reused=0.0,
        peak_nbytes=peak_nbytes,
    )


def peer(seconds: float) -> PeerOutcome:
    return PeerOutcome(
        num_requests=1000,
        loop_s=seconds,
        process_s=seconds + 1.0,
        mean_ttft_ms=1.0,
        p99_ttft_ms=2.0,
        mean_tpot_ms=3.0,
        reused=0.0,
    )


@pytest.fixture
def folder(tmp_path):
    """A data folder of our own, small."""
    (tmp_path / "bench-inputs").mkdir()
    rows = ["request_id,arrival_s,prompt_tokens,output_tokens"]
    rows += [f"{k},{k * 1.6},{600 + k},{1 + k}" for k in range(30)]
    (tmp_path / "bench-inputs/azconv_poisson_r1_n10000.csv").write_text("\n".join(rows))
    speed = [
        {"peer": f"{name} 1", "workload": f"{load} of it", "config": "4P+4D", "req_per_s_loop": 100}
        for name, load, _ in [("dynamo", "W1 r16 10000", ""), *PLACES.values()]
    ]
    (tmp_path / "bench-inputs/peer-anchors.json").write_text(json.dumps({"speed": speed}))
    return tmp_path


def test_a_table_is_written_at_its_rate_with_blocks_that_nobody_shares(folder, tmp_path):
    path = write_trace("w1-r16-20", folder, tmp_path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 20
    assert lines[3]["timestamp"] == pytest.approx(3 * 100.0)
    assert (lines[3]["input_length"], lines[3]["output_length"]) == (603, 4)
    ids = [one for line in lines for one in line["hash_ids"]]
    assert len(ids) == len(set(ids)) == 40
    with pytest.raises(ConfigError, match=r"sharegptlike.*--data"):
        write_trace("w3-r2-1000", folder, tmp_path)


def test_a_scene_runs_and_says_what_it_cost(folder, tmp_path, capsys):
    path = write_trace("w1-r16-30", folder, tmp_path)
    child.main(["w1", str(path), "2"])
    told = msgspec.json.decode(capsys.readouterr().out, type=Outcome)
    assert told.num_completed == told.num_requests == 30
    assert len(told.loops_s) == 2 and told.per_s > 0 and told.num_events > 30
    assert told.mean_ttft_ms > 25.0, "a prompt of 600 tokens takes as long in Dynamo's engine"


def test_every_scene_has_a_trace_and_a_deployment():
    names = [scene.name for scene in (*DUELS, *ALONE)]
    assert len(set(names)) == len(names)
    assert {scene.name for scene in ALONE} == set(PLACES)
    for name in names:
        assert find_scene(name).deployment.num_workers >= 1
    with pytest.raises(ConfigError, match="scene 'none': use one of w1,"):
        find_scene("none")


def test_ratios_are_medians_over_rounds_taken_in_turn():
    duel = Duel(scene="w1", what="", ours=[outcome(s) for s in (0.1, 0.2, 0.4)])
    duel.ours_process_s = [1.0, 1.0, 1.0]
    duel.theirs = [peer(s) for s in (1.0, 1.0, 8.0)]
    assert duel.loop_ratio == pytest.approx(10.0)
    assert duel.process_ratio == pytest.approx(2.0)


def test_peers_are_scaled_by_dynamo_s_speed_in_the_same_run(folder):
    anchors = Anchors(folder)
    duel = Duel(scene="w1", what="", ours=[outcome(0.1)], theirs=[peer(20.0)])
    assert anchors.factor(None) == 1.0
    assert anchors.factor(duel) == pytest.approx(0.5)
    scaled = anchors.scale("splitwise-r80", outcome(0.1), 0.5)
    assert (scaled.peer_per_s, scaled.ratio) == (pytest.approx(50.0), pytest.approx(200.0))


def test_published_anchors_have_a_row_for_every_peer():
    if not (DATA / "bench-inputs/peer-anchors.json").exists():
        pytest.skip(f"{DATA}/bench-inputs/peer-anchors.json is not there: set BATON_DATA")
    anchors = Anchors(DATA)
    found = {anchors.find(*place)["req_per_s_loop"] for place in PLACES.values()}
    assert len(found) == len(PLACES) and 200 < min(found) < max(found) < 1000


def test_targets_are_judged_where_they_were_measured():
    result = Result(limit=Limit(events_per_s=1e7), load_average=0.0)
    assert result.targets == [] and result.is_met
    duel = Duel(scene="w6", what="", ours=[outcome(0.1)], theirs=[peer(0.29)])
    result.duels = [duel, Duel(scene="one", what="", ours=[outcome(9.0)], theirs=[peer(1.0)])]
    result.million = outcome(9.0, peak_nbytes=3 << 30)
    result.placement = PlacementTime(what="", seconds=9.9, found="")
    verdicts = {target.unit: target.is_met for target in result.targets}
    assert verdicts == {"times": False, "GiB": False, "s": True}
    assert not result.is_met


def test_dynamo_gets_the_same_workers_and_links():
    flags = _workers(find_scene("w6"))
    assert flags[:2] == ["--num-prefill-workers", "4"]
    engine = json.loads(flags[3])
    assert engine["worker_type"] == "prefill" and engine["kv_transfer_bandwidth"] == 25.0
    assert _workers(find_scene("w6-mixed"))[:2] == ["--num-workers", "8"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "speed"], "no such part"),
        (["--rounds", "0"], "at least 1"),
        ([], "no data"),
    ],
)
def test_bad_input_is_one_line(arguments, message, monkeypatch, capsys):
    monkeypatch.delenv("BATON_DATA", raising=False)
    assert command.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_python_without_dynamo_says_what_to_install(tmp_path):
    with pytest.raises(ConfigError, match=r"ai-dynamo==1\.4\.2"):
        Dynamo(str(tmp_path / "no-python"), tmp_path)
