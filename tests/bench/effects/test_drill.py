"""Each drill injects what it is named after, where it hurts."""

import pytest

from baton.bench.effects.drill import DRILLS, Tally, judge_drill, run_drill


@pytest.fixture(scope="module")
def tallies() -> dict[str, Tally]:
    return {name: run_drill(name, 2) for name in DRILLS}


def test_every_drill_runs_clean(tallies):
    assert [tally.violations for tally in tallies.values()] == [[]] * len(DRILLS)
    assert {tally.num_runs for tally in tallies.values()} == {2}


def test_workers_die_while_their_chunk_is_on_its_way(tallies):
    assert tallies["kill sender"].injected["sender killed"] == 2
    assert tallies["kill receiver"].injected["receiver killed"] == 2


def test_faults_really_happen(tallies):
    assert tallies["duplicates"].injected["message twice"] > 0
    assert tallies["stale epochs"].injected["stale hellos"] > 0
    assert any(kind.startswith("lost ") for kind in tallies["lost acks"].injected)


def test_too_few_runs_are_not_accepted(tallies):
    effect = judge_drill(list(tallies.values()))
    assert effect.met is False and effect.figures["num_runs"] == 10


def test_a_violation_is_not_accepted(tallies):
    many = [
        Tally(
            name=name,
            num_runs=50,
            injected=tally.injected,
            marks=tally.marks,
            violations=["seed 1: leak: a block"] if name == "lost acks" else [],
        )
        for name, tally in tallies.items()
    ]
    effect = judge_drill(many)
    assert effect.met is False and effect.figures["violations"] == ["seed 1: leak: a block"]
