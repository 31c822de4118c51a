"""Fitting of effects to measured times: robust, with a prior for every effect."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from baton.hardware.operators.columns import Floats
from baton.planner.predict.closed_loop import NUM_TIMES, LoopTimes, loop_times
from baton.planner.predict.effects import (
    OPERATOR_SPREAD,
    QUANTITIES,
    Labels,
    effect_name,
    quantities_of,
)
from baton.planner.predict.features import Features
from baton.planner.predict.operating import TERMS

SCALE = 0.2
"""A residual far above this (of a logarithm) hardly counts: such rows hide something."""
UNSTATED_SCALE = 0.4
"""The same of times between tokens where the table does not say what the pools are: such a table
does not say either who drafts tokens, which halves them, and both kinds should be met half-way."""
_STEP = 1e-4
_MAX_DAMPING = 1e7


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Measured deployments; times in milliseconds."""

    features: Features
    labels: Sequence[Labels]
    ttft: Floats
    tpot: Floats
    weights: Floats
    """Of rows: equal ones share a weight of 1."""


def predict(features: Features, labels: Sequence[Labels], fitted: dict[str, float]) -> LoopTimes:
    """With coefficients by name, as `fit` returns them."""
    operators = np.exp([fitted.get(f"operator/{name}", 0.0) for name in TERMS[:NUM_TIMES]])
    return loop_times(features, operators, quantities_of(labels, fitted))


class _Problem:
    """Where each coefficient acts."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        unstated = np.where(sample.features.is_given > 0, SCALE, UNSTATED_SCALE)
        self.scales = (np.full(len(unstated), SCALE), unstated)
        self.names = [f"operator/{name}" for name in TERMS[:NUM_TIMES]]
        spread = [OPERATOR_SPREAD] * NUM_TIMES
        self.columns: dict[str, list[np.ndarray]] = {}
        for name, quantity in QUANTITIES.items():
            for kind, width in quantity.spread.items():
                known = sorted({one[kind] for one in sample.labels})
                place = {label: len(self.names) + i for i, label in enumerate(known)}
                column = np.array([place[one[kind]] for one in sample.labels])
                self.columns.setdefault(name, []).append(column)
                self.names += [effect_name(name, kind, label) for label in known]
                spread += [width] * len(known)
        self.pull = 1.0 / np.array(spread) ** 2

    def residuals(self, at: Floats, moved: str = "") -> tuple[Floats, Floats]:
        """Logarithms of predicted over measured; `moved` is a quantity to be shifted a little."""
        operators = np.exp(at[:NUM_TIMES])
        if moved in TERMS:
            operators[TERMS.index(moved)] *= np.exp(_STEP)
        quantities = {}
        for name, quantity in QUANTITIES.items():
            total = sum(at[column] for column in self.columns[name])
            total = total + (_STEP if moved == name else 0.0)
            start = quantity.start
            quantities[name] = start + total if quantity.is_power else start * np.exp(total)
        times = loop_times(self.sample.features, operators, quantities)
        return np.log(times.ttft / self.sample.ttft), np.log(times.tpot / self.sample.tpot)

    def slopes(self, at: Floats, found: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Every row depends on one effect of each kind, so one shift per quantity tells all."""
        num = len(found[0])
        both = tuple(np.zeros((num, len(self.names))) for _ in range(2))
        rows = np.arange(num)
        for place, name in enumerate((*TERMS[:NUM_TIMES], *QUANTITIES)):
            shifted = self.residuals(at, name)
            for slope, before, after in zip(both, found, shifted, strict=True):
                change = (after - before) / _STEP
                if name in QUANTITIES:
                    for column in self.columns[name]:
                        slope[rows, column] = change
                else:
                    slope[:, place] = change
        return both[0], both[1]


def fit(
    sample: Sample, max_iterations: int = 25, tick: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Levenberg-Marquardt with Cauchy weights, from the physics on."""
    problem = _Problem(sample)
    at, damping = np.zeros(len(problem.names)), 1e-2
    weights, prior = sample.weights, SCALE**2 * problem.pull

    def cost(place: Floats, found: tuple[Floats, Floats]) -> float:
        total = float((prior * place**2).sum())
        for one, scale in zip(found, problem.scales, strict=True):
            total += float((weights * scale**2 * np.log1p((one / scale) ** 2)).sum())
        return total

    found = problem.residuals(at)
    best = cost(at, found)
    for _ in range(max_iterations):
        normal, downhill = np.diag(prior), -prior * at
        for slope, one, scale in zip(problem.slopes(at, found), found, problem.scales, strict=True):
            robust = weights / (1.0 + (one / scale) ** 2)
            normal = normal + slope.T @ (slope * robust[:, None])
            downhill = downhill - slope.T @ (robust * one)
        before = best
        while damping < _MAX_DAMPING:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
            tried = problem.residuals(at + step)
            if cost(at + step, tried) < best:
                at, found, best = at + step, tried, cost(at + step, tried)
                damping = max(damping / 4, 1e-7)
                break
            damping *= 4
        tick()
        if before - best < 1e-4 * before:
            break
    return dict(zip(problem.names, (float(one) for one in at), strict=True))
