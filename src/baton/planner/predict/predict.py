"""Predicted times of every row of a table."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from baton.errors import ConfigError
from baton.hardware.operators.columns import Floats
from baton.planner.predict.case import Case, case_of
from baton.planner.predict.closed_loop import LoopTimes
from baton.planner.predict.coefficients import Coefficients
from baton.planner.predict.effects import Labels, labels_of
from baton.planner.predict.features import Features, each_of, gathered
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
    refused: dict[int, str] = field(default_factory=dict)
    """Rows that cannot be predicted, by place, and why."""


def prepare(rows: list[Row], data: Path, tick: Callable[[], None] = lambda: None) -> Prepared:
    """Look up models and systems, and compose operator times. Raises ConfigError by line."""
    found = prepare_each(rows, data, tick)
    for reason in found.refused.values():
        raise ConfigError(reason)
    return found.prepared


class Each(NamedTuple):
    """Rows that can be predicted, and by place why the others cannot."""

    prepared: Prepared
    places: list[int]
    refused: dict[int, str]


def prepare_each(rows: list[Row], data: Path, tick: Callable[[], None] = lambda: None) -> Each:
    """The same row by row: one that cannot be does not take the others with it."""
    cases: dict[int, Case] = {}
    refused: dict[int, str] = {}
    for place, row in enumerate(rows):
        try:
            cases[place] = case_of(row)
        except ConfigError as error:
            refused[place] = str(error)
            tick()
    shares = [mean_share(rows[place]) for place in cases]
    found = each_of(list(cases.values()), TermsCache(data), shares, tick)
    columns = {}
    for place, one in zip(cases, found, strict=True):
        if isinstance(one, ConfigError):
            refused[place] = f"line {rows[place].line}: {one}"
        else:
            columns[place] = one
    features = gathered(list(columns.values()))
    labels = [
        labels_of(rows[place], case) for place, case in zip(columns, features.cases, strict=True)
    ]
    in_order = dict(sorted(refused.items()))
    return Each(Prepared(features=features, labels=labels), list(columns), in_order)


def mean_share(row: Row) -> float:
    """Mean length over the one that the row names."""
    return _PUBLIC_SHARE if row.text("source_kind") in _PUBLIC else 1.0


def predict_table(
    table: Table, data: Path, coefficients: Coefficients, tick: Callable[[], None] = lambda: None
) -> Prediction:
    """Every row, extrapolated where no table has its cells; NaN for one that cannot be.

    Raises ConfigError where no row can be predicted.
    """
    prepared, places, refused = prepare_each(table.rows, data, tick)
    if not places:
        first = next(iter(refused.values()), "the table has no rows")
        raise ConfigError(f"none of {len(table.rows)} rows can be predicted; {first}")
    times = predict(prepared.features, prepared.labels, coefficients.effects)
    num = len(table.rows)
    ttft, tpot = np.full(num, np.nan), np.full(num, np.nan)
    ttft[places], tpot[places] = times.ttft, times.tpot
    sources = [f"refused: {refused[place]}" if place in refused else "" for place in range(num)]
    is_extrapolated = [False] * num
    texts = zip(places, prepared.features.sources, prepared.features.extrapolated, strict=True)
    for place, source, missing in texts:
        sources[place] = source + (f"; extrapolated: {', '.join(missing)}" if missing else "")
        is_extrapolated[place] = bool(missing)
    return Prediction(
        times=LoopTimes(ttft=ttft, tpot=tpot),
        sources=sources,
        is_extrapolated=is_extrapolated,
        refused=refused,
    )


def measured_times(rows: list[Row]) -> tuple[Floats, Floats]:
    """What was measured, NaN where it was not, or is no number: such a row is refused."""
    ttft = np.array([_measured(row, "silicon_ttft_ms") for row in rows], np.float64)
    tpot = np.array([_measured(row, "silicon_tpot_ms") for row in rows], np.float64)
    return ttft, tpot


def _measured(row: Row, name: str) -> float:
    try:
        return row.measured(name)
    except ConfigError:
        return np.nan
