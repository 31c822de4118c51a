"""The fit finds coefficients that made the points, and judges itself by points it has not seen."""

import random

import numpy as np
import pytest

from baton.errors import ConfigError
from baton.policy.phase_cost import PrefillRows
from baton.policy.service_profile import StepPoint, fit_steps, held_out_errors, points_digest
from baton.policy.service_profile.nnls import solve_non_negative
from tests.policy.profiles import GRID, STEPS


def shapes(rng: random.Random, count: int):
    for _ in range(count):
        kind = rng.choice(("prefill", "decode", "mixed"))
        prefills: tuple[PrefillRows, ...] = ()
        visible: tuple[int, ...] = ()
        if kind != "decode":
            prefills = tuple(
                PrefillRows(num_rows=int(2 ** rng.uniform(0, 9.5)), num_visible=rng.randrange(2000))
                for _ in range(rng.choice((1, 1, 2)))
            )
        if kind != "prefill":
            visible = tuple(rng.randrange(1, 2000) for _ in range(rng.randint(1, 24)))
        yield prefills, visible


def points(noise: float, count: int = 240) -> list[StepPoint]:
    rng = random.Random(7)
    made = []
    for number, (prefills, visible) in enumerate(shapes(rng, count)):
        step_us = STEPS.step_us(prefills, visible) * (1 + rng.gauss(0, noise))
        made.append(
            StepPoint(
                prefills=prefills,
                visible_lengths=visible,
                step_us=step_us,
                held_out=number % 5 == 0,
            )
        )
    return made


def test_exact_points_give_the_exact_coefficients():
    model = fit_steps(points(noise=0.0), GRID)
    assert model.base_us == pytest.approx(STEPS.base_us, rel=1e-4)
    assert model.row_us == pytest.approx(STEPS.row_us, rel=1e-4)
    assert model.work_us == pytest.approx(STEPS.work_us, rel=1e-3)
    assert all(error.max < 1e-6 for error in held_out_errors(points(0.0), model).values())


def test_noisy_points_give_nearly_the_coefficients():
    model = fit_steps(points(noise=0.03, count=1500), GRID)
    assert model.base_us == pytest.approx(STEPS.base_us, rel=0.1)
    assert model.row_us[0] == pytest.approx(STEPS.row_us[0], rel=0.3)
    assert model.row_us[4:] == pytest.approx(STEPS.row_us[4:], rel=0.1)
    assert model.work_us[0] == pytest.approx(STEPS.work_us[0], rel=0.1)
    assert model.work_us[3] == pytest.approx(STEPS.work_us[3], rel=0.05)
    errors = held_out_errors(points(0.03), model)
    assert set(errors) == {"prefill", "decode", "mixed"}
    for error in errors.values():
        assert 0.005 < error.median < 0.05
        assert error.median <= error.p90 <= error.max


def test_held_out_points_have_no_part_in_the_fit():
    clean = points(noise=0.01)
    spoiled = [
        StepPoint(
            prefills=p.prefills,
            visible_lengths=p.visible_lengths,
            step_us=p.step_us * (3 if p.held_out else 1),
            held_out=p.held_out,
        )
        for p in clean
    ]
    assert fit_steps(clean, GRID) == fit_steps(spoiled, GRID)
    wrong = held_out_errors(spoiled, fit_steps(spoiled, GRID))
    assert all(error.median > 0.5 for error in wrong.values())
    assert points_digest(clean) != points_digest(spoiled)


def test_no_coefficient_is_negative_even_when_that_would_fit_better():
    shrinking = [
        StepPoint(visible_lengths=(length,) * rows, step_us=1e6 - 100 * length - 5000 * rows)
        for length in range(100, 1000, 50)
        for rows in range(1, 9)
    ]
    model = fit_steps(shrinking, GRID)
    assert min(model.base_us, *model.row_us, *model.work_us) >= 0


def test_too_few_points_are_refused():
    with pytest.raises(ConfigError, match="cannot determine 14 coefficients"):
        fit_steps(points(0.0, count=10), GRID)


def test_bounded_least_squares_agree_with_a_search_over_supports():
    rng = np.random.default_rng(3)
    for _ in range(20):
        matrix = rng.normal(size=(30, 5))
        target = rng.normal(size=30)
        found = solve_non_negative(matrix, target)
        best = float(np.linalg.norm(target))
        for support in range(1, 32):
            columns = [c for c in range(5) if support >> c & 1]
            part, *_ = np.linalg.lstsq(matrix[:, columns], target, rcond=None)
            if (part >= 0).all():
                best = min(best, float(np.linalg.norm(matrix[:, columns] @ part - target)))
        assert (found >= 0).all()
        assert np.linalg.norm(matrix @ found - target) == pytest.approx(best, rel=1e-9)
