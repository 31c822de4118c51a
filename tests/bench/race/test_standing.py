"""Who won a race, from records alone: goodput per core, the margin, and the sentence."""

import msgspec
import pytest

from baton.bench.race.arm import arms
from baton.bench.race.calibration import Calibration
from baton.bench.race.cells import Cell
from baton.bench.race.contest import long_prompts, parse_rates
from baton.bench.race.phases import Phases
from baton.bench.race.standing import stand
from baton.bench.race.verdicts import advantage, crossover, splitting_can_lose
from baton.errors import ConfigError
from baton.goodput.record import Outcome, RequestRecord
from baton.goodput.slo import SLOTargets

FIELD = arms(2, 64)
TARGETS = SLOTargets(ttft_us=500_000, tpot_us=50_000)
CALIBRATION = Calibration(contest="long-prompt", mean_ttft_us=100_000, mean_tpot_us=30_000)


def record(ttft_ms: float, tpot_ms: float, failed: bool = False) -> RequestRecord:
    first = round(ttft_ms * 1000)
    times = (first, first + round(tpot_ms * 1000 * 9))
    return RequestRecord(
        request_id="r",
        scheduled_us=0,
        sent_us=0,
        token_times_us=() if failed else times,
        end_us=times[-1],
        num_prompt_tokens=10,
        num_output_tokens=10,
        outcome=Outcome.FAILED if failed else Outcome.COMPLETED,
    )


def phases(decode_ms: int, exposed_ms: int = 0) -> Phases:
    return Phases(
        route_us=1000,
        prefill_us=90_000,
        exposed_us=1000 * exposed_ms,
        decode_us=1000 * decode_ms,
        lost_us=0,
        num_failures=0,
    )


def cells(clocks: dict[str, list[tuple[float, float]]], decode_ms: dict[str, int]) -> list[Cell]:
    """Two repetitions of 20 equal requests; one (TTFT, TPOT) pair in ms for each rate."""
    return [
        Cell(
            arm=arm,
            contest="long-prompt",
            rate=float(number + 1),
            repetition=repetition,
            num_requests=20,
            records=(record(*pair),) * 20,
            phases=(phases(decode_ms[arm], 3 if arm == "split" else 0),) * 20,
        )
        for arm, pairs in clocks.items()
        for number, pair in enumerate(pairs)
        for repetition in range(2)
    ]


def standing(split, rival, **decode_ms):
    clocks = {arm.name: [(100, 99), (100, 99)] for arm in FIELD}
    clocks |= {"split": split, "replicas": rival}
    decode = {arm.name: 900 for arm in FIELD} | {"split": 300, "replicas": 500} | decode_ms
    measured = cells(clocks, decode)
    return stand(long_prompts(), FIELD, measured, TARGETS, CALIBRATION, safety_margin_us=5000)


def test_the_split_wins_and_the_margin_says_why():
    result = standing([(100, 40), (100, 40)], [(100, 40), (100, 60)])
    assert result.best_colocated == "replicas"
    assert result.ratio is not None and result.ratio.value == pytest.approx(2 / 1.1)
    assert result.per_core["split"].value == pytest.approx(1.0)
    assert result.sentence.startswith("Split: at least 2.00 against 1.10")
    margin = result.margins[0].verdict
    assert margin.margin.interference_saved_us == 200_000
    assert margin.margin.delta_us == 200_000 - 3000 and margin.enable
    assert advantage(result).met


def test_the_split_loses_and_says_so():
    result = standing([(100, 40), (600, 40)], [(100, 40), (100, 40)], replicas=290)
    assert result.sentence.startswith("Do not split: 1.10 against 2.00")
    assert not result.margins[0].verdict.enable
    assert splitting_can_lose(result).met and not advantage(result).met


def test_equal_arms_are_no_reason_to_split():
    result = standing([(100, 40), (100, 60)], [(100, 40), (100, 60)])
    assert result.sentence.startswith("No clear winner") and "stay colocated" in result.sentence


def test_no_arm_within_the_targets():
    result = standing([(900, 40), (900, 40)], [(100, 70), (100, 70)])
    assert result.ratio is None and result.sentence.startswith("Neither")


def test_the_only_arm_within_the_targets():
    result = standing([(100, 40), (100, 40)], [(100, 70), (100, 70)])
    assert result.ratio is None and result.sentence.startswith("Split: it keeps")
    assert result.ratio_is_at_least == 2.0


def test_the_winner_by_scale_of_the_target():
    result = standing([(100, 40), (100, 40)], [(100, 70), (100, 70)])
    text = crossover(result).measured
    assert "1x split" in text and "2x neither" in text


def test_failures_and_skipped_cells_are_misses():
    cell = Cell(
        arm="split",
        contest="c",
        rate=1.0,
        repetition=0,
        num_requests=2,
        records=(record(100, 40), record(100, 40, failed=True)),
        phases=(),
    )
    assert cell.met(TARGETS) == [True, False]
    skipped = msgspec.structs.replace(cell, records=(), is_skipped=True)
    assert skipped.met(TARGETS) == [False, False]


def test_a_cell_draws_the_same_requests_for_every_arm_and_others_for_another_repetition():
    contest = long_prompts()
    assert contest.cell(2.0, 10, 1) == contest.cell(2.0, 10, 1)
    assert contest.cell(2.0, 10, 1).requests != contest.cell(2.0, 10, 2).requests
    assert len(contest.cell(2.0, 10, 1).requests) == 20


def test_every_arm_uses_every_core_with_one_thread_each():
    assert {arm.num_cores for arm in arms(2, 64)} == {2}
    assert {arm.num_cores for arm in arms(6, 64)} == {6}
    with pytest.raises(ConfigError, match="splitting needs at least 2"):
        arms(1, 64)


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "1,inf"])
def test_bad_rates(text):
    with pytest.raises(ConfigError, match="--rates"):
        parse_rates(text)


def test_rates_are_sorted_and_counted_once():
    assert parse_rates("2, 1,2") == (1.0, 2.0)
