"""Published results: those that are quick as a whole, the others on a trace's first requests."""

import json

import pytest
from tests.data import DATA, data_file
from tests.sim.simulated import lru_hits
from typer.testing import CliRunner

from baton.core.cache import Milestone
from baton.core.ids import Role
from baton.errors import ConfigError
from baton.sim.reproduce import __main__ as command
from baton.sim.reproduce.break_even import break_even_checks
from baton.sim.reproduce.check import Check, near
from baton.sim.reproduce.data import Data
from baton.sim.reproduce.reuse import hits
from baton.sim.reproduce.routes import mean_ttft_s, routed
from baton.sim.reproduce.sessions import Turn, expected, react_ms, turns_of
from baton.workload.load import load_trace


def run(*arguments: str):
    app = command.typer.Typer()
    app.command()(command.reproduce)
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_check_is_met_within_its_bounds_alone():
    check = near("r0", "a ratio", 0.5, 0.52, 0.02)
    assert check.met and check.verdict == "met" and check.accepted == "0.48 .. 0.52"
    assert not near("r0", "a ratio", 0.5, 0.53, 0.02).met
    least = Check(target="r0", what="x", published="", measured=1.0, low=1.1)
    assert least.verdict == "NOT met" and least.accepted == ">= 1.1"
    shown = Check(target="r0", what="x", published="", measured=1.0)
    assert not shown.is_judged and shown.verdict == "" and shown.accepted == "-"


def test_the_break_even_links_are_the_published_ones():
    checks = break_even_checks()
    assert len(checks) == 2 and all(check.met for check in checks)


def test_rows_of_three_turns_are_those_written_by_hand():
    """6400 rows, then each turn 320 of an answer, of which 319 have rows, and 160 new words."""
    assert [expected(Milestone.BIDIRECTIONAL, turn) for turn in range(2)] == [
        Turn(prefill=6400, sent=6400, returned=304),
        Turn(prefill=176, sent=176, returned=304),
    ]
    assert expected(Milestone.PREFILL, 2) == Turn(prefill=480, sent=7360, returned=0)
    assert expected(Milestone.NONE, 2) == Turn(prefill=7360, sent=7360, returned=0)


@pytest.mark.parametrize("milestone", list(Milestone))
def test_workers_compute_send_and_return_exactly_these_rows(milestone):
    assert turns_of(milestone) == [expected(milestone, turn) for turn in range(3)]


def test_splitting_loses_where_prompts_are_long_and_answers_short():
    split = react_ms((Role.PREFILL, Role.DECODE), Milestone.NONE, 0)
    assert split > 1.05 * react_ms((Role.MIXED, Role.MIXED), Milestone.NONE, 0)


def test_reuse_of_a_trace_is_its_plain_lru():
    path = data_file("mooncake/synthetic_trace.jsonl.gz")
    found = hits(Data(folder=DATA, num=300), "synthetic", 800)
    prompts = [one.hash_ids for one in load_trace(path, limit=300).requests]
    assert found.reuse.num_cached_blocks == lru_hits(prompts, 799) > 0


def test_cache_aware_routes_reuse_more_and_copies_move_history():
    data_file("mooncake/conversation_trace.jsonl.gz")
    data = Data(folder=DATA, num=300)
    means, reuse, copied = {}, {}, {}
    for policy in ("random", "load_balance", "local_cache_aware", "global_cache_aware"):
        found = routed(data, "conversation", policy, mfu=0.45)
        means[policy] = mean_ttft_s(found)
        reuse[policy] = found.token_hit_ratio
        copied[policy] = found.moved_nbytes.get("insert", 0)
    assert means["random"] > 2 * means["load_balance"] > 2 * means["local_cache_aware"]
    assert reuse["local_cache_aware"] > reuse["load_balance"]
    assert copied["global_cache_aware"] > 0 == copied["local_cache_aware"]


def test_the_command_says_what_was_met(tmp_path):
    out = tmp_path / "checks.json"
    result = run("--only", "r21", "--json", str(out))
    assert result.exit_code == 0 and "2 of 2 targets met" in result.output
    assert [check["target"] for check in json.loads(out.read_text())] == ["r21", "r21"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "r99"], "--only 'r99': not known; use reuse, r16"),
        (["--only", "r18"], "no data: name the folder of data sets with --data or BATON_DATA"),
        (["--only", "reuse", "--data", "/none"], "no such file; name a folder that holds mooncake"),
    ],
)
def test_bad_input_is_named_with_its_remedy(arguments, message, monkeypatch):
    monkeypatch.delenv("BATON_DATA", raising=False)
    with pytest.raises(ConfigError) as caught:
        run(*arguments)
    assert message in str(caught.value)
