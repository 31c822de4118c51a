"""The router's benchmark on a small load: what it asks is answerable, what it prints is judged."""

import sys
from pathlib import Path

import pytest

from baton.bench.router.__main__ import main, parse, run
from baton.bench.router.figure import Figure
from baton.bench.router.footprint import weigh
from baton.bench.router.load import Load, Shape, as_number, percentile, worker_name
from baton.bench.router.ours import FleetRouter, fill_index, time_matches
from baton.bench.router.peer import RadixTreePeer
from baton.cache.index import BlockIndex
from baton.errors import BatonError

SHAPE = Shape(num_workers=8, num_blocks=20_000, prompt_blocks=32, num_heads=4, head_blocks=4)


def test_a_load_is_as_large_as_it_says_and_equal_for_equal_seeds():
    load = Load(SHAPE)
    sequences = list(load)
    names = {name for _, prompt in sequences for name in prompt}
    assert abs(len(names) - SHAPE.num_blocks) <= SHAPE.prompt_blocks
    assert {worker for worker, _ in sequences} == set(range(8))
    assert sequences == list(Load(SHAPE))
    shared = sum(1 for _, p in sequences if p[0] == sequences[0][1][0])
    assert shared > len(sequences) / 8, "beginnings are shared"


def test_questions_are_known_whole_in_part_and_not_at_all():
    load = Load(SHAPE)
    index, stored_per_s = fill_index(load)
    assert stored_per_s > 0
    questions = load.questions(400, 5)
    depths = [match[1] if (match := index.match(q).best) else 0 for q in questions]
    assert all(len(question) == SHAPE.prompt_blocks for question in questions)
    whole, unknown = depths.count(SHAPE.prompt_blocks), depths.count(0)
    assert 140 <= whole <= 260 and 5 <= unknown <= 45
    assert not {id(name) for q in questions for name in q} & {id(name) for name in index}
    assert len(time_matches(index, questions)) == 400


def test_the_fleet_holds_what_the_index_holds_and_routes_every_question():
    load = Load(SHAPE)
    fleet = FleetRouter(load)
    fleet.hold(load)
    plain, _ = fill_index(Load(SHAPE))
    told = fleet.router.context.holdings
    assert (told.num_blocks, told.num_claims) == (plain.num_blocks, plain.num_claims)
    questions = load.questions(20, 5)
    assert [told.match(q).depths for q in questions] == [plain.match(q).depths for q in questions]
    for policy in ("memserve", "conductor", "pair"):
        assert min(fleet.time_decisions(policy, questions)) > 0


def test_a_process_is_weighed():
    assert 80 < weigh(SHAPE) < 1000


def test_it_prints_the_limits_and_says_that_the_peer_is_missing(capsys):
    options = parse(["--blocks", "20000", "--workers", "8", "--questions", "20", "--rounds", "1"])
    run(options)
    printed = capsys.readouterr().out
    assert "PEER MISSING" in printed and "8 workers, 20,000 blocks" in printed
    lines = [line for line in printed.splitlines() if "limit" in line]
    assert len(lines) >= 10 and all(line.endswith((" met", "NOT met")) for line in lines)


def test_a_figure_is_judged_on_the_right_side_of_its_limit():
    most = Figure(name="match", value=18.5, limit=18.0, unit="us")
    least = Figure(name="stored", value=200_001, limit=200_000, unit="blocks/s", is_floor=True)
    assert not most.is_met and most.text.endswith("NOT met")
    assert least.is_met and "200,001" in least.text
    assert percentile([3, 1, 2, 4], 0.5) == 3 and percentile(range(100), 0.99) == 99


def test_a_bad_option_and_a_python_without_the_peer_are_named(capsys):
    assert main(["--blocks", "5"]) == 2
    assert "--blocks 5: at least 20000" in capsys.readouterr().err
    with pytest.raises(BatonError, match=r"ai-dynamo-runtime==1\.4\.2"):
        RadixTreePeer(sys.executable)
    with pytest.raises(BatonError, match="--dynamo-python"):
        RadixTreePeer(str(Path("/nowhere/python")))


def test_names_of_both_sides_agree():
    assert as_number(bytes([1, 2]) + bytes(14)) == 0x0201
    assert [worker_name(n, 4) for n in range(4)] == [
        "prefill-0",
        "prefill-1",
        "decode-2",
        "decode-3",
    ]
    assert not BlockIndex().match([bytes(16)])
