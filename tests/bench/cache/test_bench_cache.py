"""The caching benchmark: its arithmetic on made figures, and both parts with the tiny model."""

from io import StringIO

import pytest
from rich.console import Console

from baton.bench.cache.budget import Budget
from baton.bench.cache.disk import (
    DiskTier,
    Reload,
    Way,
    cached_share,
    drop_from_page_cache,
    measure_disk,
    print_disk,
)
from baton.bench.cache.milestones import Milestones, measure_milestones, print_milestones
from baton.bench.cache.talk import Arm, Script, Turn
from baton.core.cache import Milestone

BLOCK = 16


def turn(number: int, ttft_s: float, rows: int = 10) -> Turn:
    return Turn(
        turn=number,
        ttft_s=ttft_s,
        prompt_tokens=100,
        cached_tokens=100 - rows,
        to_decode_nbytes=0,
        to_prefill_nbytes=0,
        is_returning=False,
    )


def arm(milestone: Milestone, number: int, *ttfts_s: float, answer: int = 1) -> Arm:
    return Arm(
        milestone=milestone,
        round=number,
        sessions=tuple((turn(1, 1.0), turn(2, ttft_s)) for ttft_s in ttfts_s),
        answers=tuple((answer,) for _ in ttfts_s),
        returns=(),
        num_returned=0,
        prefill_us_per_token=100.0,
        transfer_bytes_per_us=1000.0,
        bytes_per_token=1024,
    )


def test_the_speedup_is_the_median_of_ratios_within_a_round():
    none, back = Milestone.NONE, Milestone.BIDIRECTIONAL
    found = Milestones(
        script=Script(num_turns=2),
        arms=(
            arm(none, 0, 2.0, 2.0), arm(back, 0, 1.0, 0.5),
            arm(back, 1, 5.0, 10.0, answer=2), arm(none, 1, 15.0, 10.0),
        ),
    )  # fmt: skip
    assert sorted(found.speedups(back, 2)) == [1.0, 2.0, 3.0, 4.0]
    assert (found.speedup, found.is_met) == (2.5, True)
    assert found.same_answers(back) == (2, 4)
    assert found.milestones == [none, back]


def test_the_history_of_a_turn_is_what_was_said_before_it():
    script = Script(first_tokens=300, new_tokens=40, answer_tokens=24)
    assert [script.history(turn) for turn in (1, 2, 3, 5)] == [0, 324, 388, 516]


@pytest.mark.parametrize(
    ("reloaded_ms", "expected"),
    [((1, 1, 1), 32), ((3, 1, 1), 64), ((1, 3, 1), 128), ((1, 1, 3), None), ((2, 1, 1), 64)],
)
def test_the_break_even_length_holds_for_every_longer_one(reloaded_ms, expected):
    reloads = []
    for length, ms in zip((32, 64, 128), reloaded_ms, strict=True):
        for way, ttft_ms in ((Way.COMPUTED, 2), (Way.COLD_FILES, ms)):
            reloads.append(
                Reload(
                    way=way, num_tokens=length, ttft_s=ttft_ms / 1000, num_loaded=0, num_wanted=0
                )
            )
    found = DiskTier(
        reloads=tuple(reloads),
        bytes_per_token=1024,
        prefill_us_per_token=10.0,
        disk_bytes_per_us=100.0,
        still_cached=0.0,
    )
    assert found.break_even(Way.COLD_FILES) == expected
    assert found.is_met == (expected is not None)


def test_dropping_files_from_the_page_cache_leaves_them_as_they_are(tmp_path):
    path = tmp_path / "worker" / "x.kv"
    path.parent.mkdir()
    path.write_bytes(bytes(range(256)) * 64)
    assert cached_share(tmp_path) == 1
    drop_from_page_cache(tmp_path)
    assert path.read_bytes() == bytes(range(256)) * 64


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, [0]), (39, [0]), (40, [0, 1]), (60, [0, 1, 2]), (999, [0, 1, 2, 3])],
)
def test_rounds_that_do_not_fit_are_left_out_and_said(seconds, expected):
    clock, said = [5.0], []
    budget = Budget(10 + seconds, said.append, lambda: clock[0])
    clock[0] += 10  # a start, which is of no round
    done = []
    for number in budget.rounds(4):
        done.append(number)
        clock[0] += 20
    assert done == expected
    assert bool(said) == (len(done) < 4)


@pytest.mark.slow
async def test_turns_of_the_tiny_model():
    """None computes the whole prompt of each turn, bidirectional only what nobody has said yet."""
    script = Script(num_sessions=1, num_turns=3, first_tokens=100, think_s=1.0)
    none, back = Milestone.NONE, Milestone.BIDIRECTIONAL
    found = await measure_milestones("tiny", script, 1, Budget(0, print), (none, back))
    ((cold,),) = [one.sessions for one in found.of(none)]
    ((warm,),) = [one.sessions for one in found.of(back)]
    assert [one.rows for one in cold] == [one.prompt_tokens for one in cold]
    bytes_per_token = found.arms[0].bytes_per_token
    for one in cold:
        assert one.to_decode_nbytes == one.prompt_tokens * bytes_per_token
        assert one.to_prefill_nbytes == 0
    (arm_back,) = found.of(back)
    assert len(arm_back.returns) == script.num_turns
    if all(price.pays for price in arm_back.returns):
        for one in warm[1:]:
            # Everything that was said has rows but the last token, in whole blocks.
            held = (script.history(one.turn) - 1) // BLOCK * BLOCK
            assert one.cached_tokens == held
            assert one.to_decode_nbytes == (one.prompt_tokens - held) * bytes_per_token
        assert warm[0].to_prefill_nbytes > 0
    text = StringIO()
    print_milestones(found, Console(file=text, width=150))
    for words in (
        "limits at turn 3",
        "mean TTFT, ms",
        "decode to prefill",
        "accept: bidirectional",
    ):
        assert words in text.getvalue()


@pytest.mark.slow
async def test_reloads_of_the_tiny_model():
    found = await measure_disk("tiny", 1, (32, 100), Budget(0, print))
    assert found.lengths == [32, 100]
    for length in found.lengths:
        for way in Way:
            (one,) = found.of(way, length)
            assert one.num_wanted == (0 if way is Way.COMPUTED else (length - 1) // BLOCK)
            # The worker may find that computing is faster, and then loads nothing at all.
            assert one.num_loaded in (0, one.num_wanted)
    assert any(one.num_loaded for one in found.reloads)
    text = StringIO()
    print_disk(found, Console(file=text, width=150))
    assert text.getvalue().count("accept: reload beats recompute") == 2
