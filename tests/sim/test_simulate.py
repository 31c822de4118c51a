"""`baton simulate`: figures that can be had by hand, equal ones for equal arguments, bad input."""

import csv
import json
import random
from pathlib import Path

import pytest
from tests.data import data_file
from tests.policy.profiles import make_profile
from tests.sim.simulated import BLOCK, lru_hits, write_trace
from typer.testing import CliRunner

from baton.cli import app
from baton.errors import ConfigError
from baton.policy.phase_cost import PrefillRows
from baton.policy.service_profile import encode_profile
from baton.sim.simulate.hardware import MACHINES, MachineCosts, machine

MACHINE = MACHINES["a100x8-llama70b"]
COSTS = MachineCosts(MACHINE)
CACHE_FLAGS = [
    "--mixed",
    "1",
    "--block-size",
    "512",
    "--closed-loop",
    "1",
    "--max-output",
    "1",
    "--whole-blocks",
]


def simulate(trace: Path, *flags: str, hardware: str = "a100x8-llama70b") -> dict:
    out = trace.with_suffix(".json")
    arguments = ["simulate", "--trace", str(trace), "--json", str(out), *flags]
    if hardware:
        arguments += ["--hardware", hardware]
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(out.read_text())


def test_prefill_time_is_the_published_estimate_less_the_cached_share():
    d, rate = 8192, 8 * 312e6 * 0.5

    def flops(n):
        return 80 * (4 * n * n * d + 22 * n * d * d)

    whole = COSTS.step_us([PrefillRows(num_rows=8192)], [])
    rest = COSTS.step_us([PrefillRows(num_rows=2048, num_visible=6144)], [])
    assert whole == pytest.approx(flops(8192) / rate)
    assert rest == pytest.approx((flops(8192) - flops(6144)) / rate)
    # A few rows take as long as reading the weights, and so does one token of one sequence.
    weights_us = 140e9 / (8 * 2039e3)
    assert COSTS.step_us([PrefillRows(num_rows=1)], []) == pytest.approx(weights_us, rel=1e-3)
    assert COSTS.step_us([], [1]) == pytest.approx(weights_us, rel=1e-3)
    assert COSTS.step_us([], []) == 0.0


def test_a_machine_holds_the_published_bytes_of_a_token():
    assert MACHINE.token_nbytes == 320 * 1024
    assert COSTS.subject.shape.layout.bytes_per_token == MACHINE.token_nbytes
    assert MACHINE.break_even_gbytes_per_s(8192) == pytest.approx(5.86, rel=0.01)
    assert MACHINES["h800x8-llama70b"].break_even_gbytes_per_s(8192) == pytest.approx(18.57, 0.01)


def test_one_split_request_by_hand(tmp_path):
    trace = write_trace(tmp_path / "one.jsonl", (0, 5000, 3, range(10)))
    found = simulate(trace, "--prefill", "1", "--decode", "1", "--blocks", "1000")
    prefill_us = COSTS.step_us([PrefillRows(num_rows=5000)], [])
    rows = 5008  # whole blocks of 16 move
    assert found["moved_nbytes"] == {"handoff": rows * MACHINE.token_nbytes}
    # The last layer group's share of the transfer, and six messages and the gateway around it.
    tail_us = rows * MACHINE.token_nbytes / 1e5 / 8
    assert found["latency"]["mean_ttft_ms"] * 1000 == pytest.approx(prefill_us + tail_us, abs=2500)
    assert found["latency"]["mean_tpot_ms"] * 1000 == pytest.approx(
        COSTS.step_us([], [5001]), rel=0.01
    )
    assert [w["worker_id"] for w in found["workers"]] == ["prefill-0", "decode-1"]
    assert found["workers"][0]["busy"] * found["virtual_s"] == pytest.approx(prefill_us / 1e6, 1e-3)
    assert (found["num_completed"], found["failures"]) == (1, {})
    assert sum(found["decisions"].values()) == 1


def test_equal_arguments_give_equal_output(tmp_path):
    rows = [(i * 120, 900 + 413 * i % 5000, 1 + i % 7, ()) for i in range(60)]
    trace = write_trace(tmp_path / "some.jsonl", *rows)
    flags = ("--prefill", "2", "--decode", "2", "--cache-tokens", "60000", "--speed", "3")
    runs = [json.dumps(simulate(trace, *flags, "--goodput", "ttft:900")) for _ in range(2)]
    assert runs[0] == runs[1]
    other = simulate(trace, *flags[:-1], "1", "--goodput", "ttft:900")
    assert json.dumps(other) != runs[0]
    assert other["latency"]["mean_ttft_ms"] < json.loads(runs[0])["latency"]["mean_ttft_ms"]
    assert (
        other["attainment"]["joint"]["value"] >= json.loads(runs[0])["attainment"]["joint"]["value"]
    )


@pytest.mark.parametrize("num_blocks", [30, 60, 200])
def test_hits_are_those_of_a_plain_lru(tmp_path, num_blocks):
    rng = random.Random(num_blocks)
    families = [rng.randrange(4) * 100 for _ in range(150)]
    prompts = [[family + depth for depth in range(rng.randrange(1, 20))] for family in families]
    rows = [(0, BLOCK * len(ids) - rng.randrange(BLOCK), 1, ids) for ids in prompts]
    trace = write_trace(tmp_path / "chains.jsonl", *rows)
    found = simulate(trace, *CACHE_FLAGS, "--blocks", str(num_blocks))
    # One block is always somebody's last row.
    hits = lru_hits(prompts, num_blocks - 1)
    assert 0 < hits == found["reuse"]["num_cached_blocks"]
    assert found["block_hit_ratio"] == hits / sum(map(len, prompts))
    tokens = found["reuse"]["num_prompt_tokens"]
    assert tokens == sum(row[1] for row in rows)
    assert 0 < found["token_hit_ratio"] <= hits * BLOCK / tokens


@pytest.mark.parametrize("trace", ["conversation", "synthetic"])
def test_hits_of_a_published_trace_are_those_of_a_plain_lru(tmp_path, trace):
    path = data_file(f"mooncake/{trace}_trace.jsonl.gz")
    copy = tmp_path / "trace.jsonl.gz"
    copy.write_bytes(path.read_bytes())
    found = simulate(copy, *CACHE_FLAGS, "--blocks", "2000", "--num", "700")
    from baton.workload.load import load_trace

    requests = load_trace(path, limit=700).requests
    hits = lru_hits([one.hash_ids for one in requests], 1999)
    assert 0 < hits == found["reuse"]["num_cached_blocks"]
    total = sum(len(one.hash_ids) for one in requests)
    assert found["block_hit_ratio"] == hits / total


def test_without_rounding_a_partial_block_is_no_hit(tmp_path):
    rows = [(0, 700, 1, (1, 2)), (0, 700, 1, (1, 2))]
    trace = write_trace(tmp_path / "twice.jsonl", *rows)
    flags = [flag for flag in CACHE_FLAGS if flag != "--whole-blocks"]
    plain = simulate(trace, *flags, "--blocks", "20")
    rounded = simulate(trace, *CACHE_FLAGS, "--blocks", "20")
    assert plain["reuse"]["num_cached_tokens"] == 512
    assert rounded["reuse"]["num_cached_tokens"] == 700
    assert (plain["block_hit_ratio"], rounded["block_hit_ratio"]) == (0.25, 0.5)


def test_a_measured_profile_is_a_machine_too(tmp_path):
    profile = tmp_path / "profile.json"
    profile.write_bytes(encode_profile(make_profile()))
    trace = write_trace(tmp_path / "one.jsonl", (0, 100, 4, ()))
    found = simulate(trace, "--profile", str(profile), "--mixed", "1", hardware="")
    assert found["num_completed"] == 1 and found["hardware"].startswith("known")
    assert found["latency"]["mean_tpot_ms"] > 1


def test_arrivals_are_spread_and_sped_up(tmp_path):
    trace = write_trace(tmp_path / "ticks.jsonl", *[(0, 4000, 1, ())] * 8, (3000, 4000, 1, ()))
    flags = ("--mixed", "1", "--blocks", "4000")
    at_once = simulate(trace, *flags)["latency"]["mean_ttft_ms"]
    spread = simulate(trace, *flags, "--tick", "3000")["latency"]["mean_ttft_ms"]
    assert spread < 0.7 * at_once
    assert simulate(trace, *flags, "--speed", "0.5")["virtual_s"] > 6


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--hardware", "abacus"], "--hardware 'abacus': not known; use one of a100x8-llama70b"),
        ([], "name one machine: --model and --system"),
        (["--profile", "/no/such/file"], "--profile /no/such/file: cannot be read"),
        (["--hardware", "a100x8-llama70b", "--mfu", "1.5"], "--mfu 1.5: a share above 0"),
        (["--hardware", "a100x8-llama70b", "--bandwidth", "0"], "--bandwidth 0: GB/s"),
        (["--hardware", "a100x8-llama70b", "--speed", "0"], "--speed 0: a finite number"),
        (["--hardware", "a100x8-llama70b", "--tick", "-1"], "--tick -1: milliseconds"),
        (["--hardware", "a100x8-llama70b", "--closed-loop", "-2"], "--closed-loop -2: requests"),
        (["--hardware", "a100x8-llama70b", "--blocks", "1"], "--blocks 1: a worker needs"),
        (["--hardware", "a100x8-llama70b", "--block-size", "-3"], "--block-size -3: tokens"),
        (
            ["--hardware", "a100x8-llama70b", "--blocks", "9", "--cache-tokens", "9"],
            "--blocks and --cache-tokens say the same",
        ),
        (
            ["--hardware", "a100x8-llama70b", "--cache-tokens", "20"],
            "--cache-tokens 20: less than two blocks of 16 tokens",
        ),
        (
            ["--hardware", "a100x8-llama70b", "--mixed", "1", "--prefill", "2"],
            "--mixed cannot be combined",
        ),
        (["--hardware", "a100x8-llama70b", "--whole-blocks"], "--whole-blocks: 'plain' has no"),
        (
            ["--hardware", "a100x8-llama70b", "--num", "0"],
            "--num 0: requests of the file, 1 or more",
        ),
        (
            ["--hardware", "a100x8-llama70b", "--max-output", "0"],
            "--max-output 0: tokens, 1 or more",
        ),
        (["--hardware", "a100x8-llama70b", "--goodput", "ttft"], "--goodput 'ttft': no milli"),
        (["--hardware", "a100x8-llama70b", "--set", "worker.x=1"], "--set worker.x=1"),
        *(
            (["--hardware", "a100x8-llama70b", *flags.split()], message)
            for flags, message in (
                ("--route nope", "--route 'nope': not known; use one of shortest_queue, distserve"),
                ("--format zzz", "--format 'zzz': not known; use one of auto, mooncake"),
                ("--decode-blocks -4", "--decode-blocks -4: a decode worker needs at least 2"),
                ("--prefill 0", "--prefill 0: workers, 1 or more"),
                ("--max-model-len -1", "--max-model-len -1: tokens, 2 or more"),
                ("--block-size 0", "--block-size 0: tokens of a block, a power of two"),
                ("--block-size 48", "--block-size 48: tokens of a block, a power of two"),
                ("--goodput ttft:9 --attainment 3", "--attainment 3: a share above 0 and at most"),
                ("--attainment 0.5", "--attainment 0.5: nothing to meet; add --goodput"),
                ("--seed -1", "--seed -1: a whole number, 0 or more"),
                ("--closed-loop 2 --speed 3", "--closed-loop 2 and --speed 3 do not go together"),
                ("--closed-loop 2 --tick 9", "--closed-loop 2 and --tick 9 do not go together"),
                (
                    '--route conductor --set router.policy="pair"',
                    '--route conductor and --set router.policy="pair" name two policies',
                ),
            )
        ),
    ],
)
def test_bad_input_is_named_with_its_remedy(tmp_path, flags, message):
    trace = write_trace(tmp_path / "plain.jsonl", (0, 100, 1, ()))
    with pytest.raises(ConfigError) as caught:
        simulate(trace, *flags, hardware="")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_the_same_route_may_be_said_twice(tmp_path):
    trace = write_trace(tmp_path / "plain.jsonl", (0, 100, 1, ()))
    flags = ("--blocks", "99", "--route", "conductor", "--set", "router.policy=conductor")
    assert simulate(trace, *flags)["policy"] == "conductor"


def test_what_no_worker_can_hold_is_warned_of(tmp_path):
    trace = write_trace(tmp_path / "long.jsonl", *[(0, 5000, 1, ())] * 3, (0, 100, 1, ()))
    flags = ["--hardware", "a100x8-llama70b", "--mixed", "1", "--cache-tokens"]
    shown = [
        CliRunner().invoke(app, ["simulate", "--trace", str(trace), *flags, tokens]).output
        for tokens in ("2000", "40000")
    ]
    assert "WARNING    3 of 4 requests could not be held" in shown[0]
    assert "figures are of the other 1" in shown[0]
    assert "WARNING" not in shown[1]


def test_a_broken_trace_is_named_with_its_line(tmp_path):
    trace = write_trace(tmp_path / "cut.jsonl", (0, 100, 1, ()))
    trace.write_text(trace.read_text() + '{"timestamp": 3, "input_')
    with pytest.raises(ConfigError, match=r"cut\.jsonl, line 2: not a JSON object"):
        simulate(trace)
    with pytest.raises(ConfigError, match=r"none\.jsonl: no such file"):
        simulate(tmp_path / "none.jsonl")


def test_a_file_of_configuration_stands_on_the_machines_defaults(tmp_path):
    trace = write_trace(tmp_path / "two.jsonl", (0, 3000, 1, ()), (0, 3000, 1, ()))
    config = tmp_path / "baton.toml"
    config.write_text("[cluster]\nprefill = 0\ndecode = 0\nmixed = 1\n")
    alone = simulate(trace, "--config", str(config))
    assert alone["workers"][0]["worker_id"] == "mixed-0"
    assert alone["workers"][0]["num_steps"] == 2  # one whole prompt in a step
    config.write_text(config.read_text() + "[worker]\nmax_batch_tokens = 1024\n")
    chunked = simulate(trace, "--config", str(config))
    assert chunked["workers"][0]["num_steps"] == 6
    assert machine("a100x8-llama70b", mfu=0.4).mfu == 0.4


def busy_trace(path: Path, num: int) -> Path:
    """Prompts of uneven lengths, twenty in a second."""
    drawn = random.Random(3)
    rows = [
        (50 * index, drawn.randrange(50, 3000), drawn.randrange(2, 60), ()) for index in range(num)
    ]
    return write_trace(path / "busy.jsonl", *rows)


def test_both_hosts_tell_the_same_of_one_plan(tmp_path):
    trace = busy_trace(tmp_path, 60)
    flags = ("--prefill", "1", "--decode", "1", "--goodput", "ttft:900", "--table")
    slow, quick = tmp_path / "nodes.csv", tmp_path / "fast.csv"
    nodes = simulate(trace, *flags, str(slow))
    fast = simulate(trace, *flags, str(quick), "--fast")
    assert fast["num_completed"] == nodes["num_completed"] == 60
    for key in ("mean_ttft_ms", "p50_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms"):
        assert fast["latency"][key] == pytest.approx(nodes["latency"][key], rel=0.02), key
    assert [one["worker_id"] for one in fast["workers"]] == [
        one["worker_id"] for one in nodes["workers"]
    ]
    rows = [list(csv.DictReader(path.open())) for path in (slow, quick)]
    assert [one["request_id"] for one in rows[0]] == [one["request_id"] for one in rows[1]]
    assert all(float(one["ttft_us"]) > 0 for one in rows[1])


def test_a_table_is_parquet_where_its_name_says_so(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    trace = busy_trace(tmp_path, 8)
    simulate(trace, "--mixed", "1", "--fast", "--table", str(tmp_path / "t.parquet"))
    table = parquet.read_table(tmp_path / "t.parquet")
    assert table.num_rows == 8 and "ttft_us" in table.column_names
    with pytest.raises(ConfigError, match=r"its name must end with .csv or .parquet"):
        simulate(trace, "--mixed", "1", "--fast", "--table", str(tmp_path / "t.xlsx"))


def test_a_worker_that_dies_delays_and_loses_nothing(tmp_path):
    trace = busy_trace(tmp_path, 40)
    calm = simulate(trace, "--mixed", "2", "--fast")
    hit = simulate(trace, "--mixed", "2", "--fast", "--fail", "0:1:5")
    assert hit["num_completed"] == calm["num_completed"] == 40
    assert hit["latency"]["mean_ttft_ms"] > calm["latency"]["mean_ttft_ms"]
    with pytest.raises(ConfigError, match="--fail '0:1': write WORKER:AT_S:DOWN_S"):
        simulate(trace, "--mixed", "1", "--fast", "--fail", "0:1")
    with pytest.raises(ConfigError, match="--fail needs --fast"):
        simulate(trace, "--mixed", "1", "--fail", "0:1:5")
