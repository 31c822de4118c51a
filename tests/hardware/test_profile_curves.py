"""A measured service profile as curves: the same number for every step that a scheduler makes."""

import random
from pathlib import Path

import msgspec
import pytest
from tests.policy.profiles import GRID, STEPS, make_profile

from baton.config import BatonConfig
from baton.hardware.instance import instance_of
from baton.hardware.model import find_model
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import MissingCell, choose_predictor
from baton.hardware.profile_predictor import ProfilePredictor, curves_of
from baton.hardware.system import find_system
from baton.policy.phase_cost import PrefillRows
from baton.policy.service_profile import StepGrid
from baton.profile_file import save_profile

PROFILE = make_profile()


def profile_with(grid: StepGrid):
    return make_profile(steps=msgspec.structs.replace(STEPS, grid=grid))


def drawn_steps(size: int, seed: int, count: int = 300):
    """Steps of a scheduler that cuts chunks on the grid of prefill queries."""
    dice = random.Random(seed)
    for _ in range(count):
        chunks = [
            PrefillRows(num_rows=dice.randint(1, 900), num_visible=size * dice.randint(0, 30))
            for _ in range(dice.randint(0, 3))
        ]
        yield chunks, [dice.randint(1, 4000) for _ in range(dice.randint(0, 40))]


@pytest.mark.parametrize(
    "grid",
    [GRID, msgspec.structs.replace(GRID, min_rows=1), msgspec.structs.replace(GRID, query_rows=16),
     StepGrid(min_rows=9, query_rows=64, row_knots=(0, 6, 8, 16, 32, 64, 128))],
)  # fmt: skip
def test_curves_equal_the_profile_on_its_grid(grid):
    steps = msgspec.structs.replace(STEPS, grid=grid, row_us=STEPS.row_us[: len(grid.row_knots)])
    profile = make_profile(steps=steps)
    curves = curves_of(profile)
    for chunks, visible in drawn_steps(grid.query_rows, seed=5):
        expected = profile.step_us(chunks, visible)
        assert curves.step_us(chunks, visible) == pytest.approx(expected, rel=1e-12)


def test_without_a_query_grid_only_a_square_is_not_exact():
    profile = profile_with(msgspec.structs.replace(GRID, query_rows=0))
    curves = curves_of(profile)
    for chunks, visible in drawn_steps(1, seed=6):
        expected = profile.step_us(chunks, visible)
        assert curves.step_us(chunks, visible) == pytest.approx(expected, rel=3e-4)


def test_a_chunk_off_the_grid_differs_by_less_than_one_block():
    curves, dice = curves_of(PROFILE), random.Random(7)
    for _ in range(200):
        chunk = PrefillRows(num_rows=dice.randint(1, 500), num_visible=dice.randint(0, 900))
        end = chunk.num_rows + chunk.num_visible
        block_us = STEPS.work_us[0] * 64 * (end + 64) + STEPS.work_us[1]
        gap = curves.step_us([chunk], []) - PROFILE.step_us([chunk], [])
        assert abs(gap) <= block_us


def test_the_subject_becomes_a_model_and_a_system():
    predictor = ProfilePredictor(PROFILE)
    known = find_model("smollm2")
    for field in ("num_layers", "model_dim", "ffn_dim", "num_heads", "num_kv_heads", "head_dim"):
        assert getattr(predictor.model, field) == getattr(known, field)
    assert predictor.model.vocab_size == pytest.approx(49_152, rel=0.002)
    assert predictor.model.token_nbytes == PROFILE.subject.shape.layout.bytes_per_token
    assert (predictor.system.name, predictor.system.gpus_per_node) == ("this", 2)
    assert predictor.system.inter_bytes_per_s == 4000.0 * 1e6


def test_an_instance_has_the_measured_overheads():
    predictor = ProfilePredictor(PROFILE)
    found = instance_of(predictor, predictor.model, predictor.system, Parallel())
    assert (found.step_overhead_us, found.sequence_overhead_us) == (300.0, 50.0)
    token = PROFILE.subject.shape.layout.bytes_per_token
    assert found.kv_tokens == BatonConfig().worker.kv_nbytes // token


def test_a_profile_answers_for_its_own_model_and_machine_alone(tmp_path: Path):
    path = tmp_path / "profile.json"
    save_profile(PROFILE, path)
    predictor = ProfilePredictor(path)
    with pytest.raises(MissingCell, match="with num_layers 30, not 32"):
        predictor.curves(find_model("Llama-3.1-8B"), predictor.system, Parallel())
    with pytest.raises(MissingCell, match="use --system this"):
        predictor.curves(predictor.model, find_system("h100"), Parallel())
    with pytest.raises(MissingCell, match="one engine, not with TP2"):
        predictor.curves(predictor.model, predictor.system, Parallel(tp=2))
    choice = choose_predictor(find_model("smollm2"), predictor.system, profile=path)
    assert choice.predictor.name == "profile" and str(path) in choice.reason
    with pytest.raises(MissingCell, match=r"--profile .*use --system this"):
        choose_predictor(find_model("smollm2"), find_system("h100"), profile=path)
