"""Predicted times of every row of a table."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from baton.hardware.operators.columns import Floats
from baton.planner.predict.case import case_of
from baton.planner.predict.closed_loop import LoopTimes
from baton.planner.predict.coefficients import Coefficients
from baton.planner.predict.effects import Labels, labels_of
from baton.planner.predict.features import Features, features_of
from baton.planner.predict.fitting import predict
from baton.planner.predict.operating import TermsCache
from baton.planner.predict.rows import Row, Table

_PUBLIC_SHARE = 0.9
"""Mean over largest length in the public benchmark: lengths are uniform from 0.8 of it."""
_PUBLIC = ("csv-import", "db-dump")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Rows as features and labels, aligned."""

    features: Features
    labels: list[Labels]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One entry for each row, in milliseconds."""

    times: LoopTimes
    sources: list[str]
    is_extrapolated: list[bool]


def prepare(rows: list[Row], data: Path, tick: Callable[[], None] = lambda: None) -> Prepared:
    """Look up models and systems, and compose operator times. Raises ConfigError by line."""
    cases = [case_of(row) for row in rows]
    features = features_of(cases, TermsCache(data), [mean_share(row) for row in rows], tick)
    labels = [labels_of(row, case) for row, case in zip(rows, features.cases, strict=True)]
    return Prepared(features=features, labels=labels)


def mean_share(row: Row) -> float:
    """Mean length over the one that the row names."""
    return _PUBLIC_SHARE if row.text("source_kind") in _PUBLIC else 1.0


def predict_table(
    table: Table, data: Path, coefficients: Coefficients, tick: Callable[[], None] = lambda: None
) -> Prediction:
    """Every row, extrapolated where no table has its cells."""
    prepared = prepare(table.rows, data, tick)
    times = predict(prepared.features, prepared.labels, coefficients.effects)
    lacking = prepared.features.extrapolated
    sources = [
        source + (f"; extrapolated: {', '.join(missing)}" if missing else "")
        for source, missing in zip(prepared.features.sources, lacking, strict=True)
    ]
    return Prediction(times=times, sources=sources, is_extrapolated=[bool(one) for one in lacking])


def measured_times(rows: list[Row]) -> tuple[Floats, Floats]:
    """What was measured, NaN where it was not."""
    ttft = np.array([row.measured("silicon_ttft_ms") for row in rows], np.float64)
    tpot = np.array([row.measured("silicon_tpot_ms") for row in rows], np.float64)
    return ttft, tpot
