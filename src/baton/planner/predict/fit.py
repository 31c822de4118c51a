"""`python -m baton.planner.predict.fit`: fit the efficiencies, and test them on what they lack.

Fits on all rows; then leaves out one system at a time, one model at a time, and a quarter of the
distinct measurements at a time, fits on the rest, and predicts what was left out.
"""

import argparse
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from baton.planner.predict.closed_loop import LoopTimes
from baton.planner.predict.coefficients import Accuracy, Coefficients, write_coefficients
from baton.planner.predict.command import data_folder
from baton.planner.predict.errors import accuracy, error_table, print_errors
from baton.planner.predict.features import select
from baton.planner.predict.fitting import Sample, fit, predict
from baton.planner.predict.predict import Prepared, measured_times, prepare_each
from baton.planner.predict.rows import Row, read_table

SAMPLE = "aiconfigurator/silicon_e2e_sample.csv.gz"
_NUM_FOLDS = 4
_ITERATIONS, _FOLD_ITERATIONS = 25, 12


class Study:
    """A measured table, prepared once."""

    def __init__(self, rows: list[Row], prepared: Prepared) -> None:
        self.rows, self.prepared = rows, prepared
        self.ttft, self.tpot = measured_times(rows)
        both = np.stack([self.ttft.round(1), self.tpot.round(2)], axis=1)
        _, self.distinct, counts = np.unique(both, axis=0, return_inverse=True, return_counts=True)
        self.weights = 1.0 / counts[self.distinct]

    def fit(self, chosen: np.ndarray, max_iterations: int) -> dict[str, float]:
        """On some rows."""
        places = np.flatnonzero(chosen)
        sample = Sample(
            features=select(self.prepared.features, places),
            labels=[self.prepared.labels[i] for i in places],
            ttft=self.ttft[places],
            tpot=self.tpot[places],
            weights=self.weights[places],
        )
        return fit(sample, max_iterations)

    def predict(self, effects: dict[str, float]) -> LoopTimes:
        """All rows."""
        return predict(self.prepared.features, self.prepared.labels, effects)

    def left_out(self, parts: np.ndarray, tick: Callable[[], None]) -> LoopTimes:
        """Each part predicted from the others."""
        ttft, tpot = np.zeros(len(self.rows)), np.zeros(len(self.rows))
        for part in np.unique(parts):
            chosen = parts == part
            found = self.predict(self.fit(~chosen, _FOLD_ITERATIONS))
            ttft[chosen], tpot[chosen] = found.ttft[chosen], found.tpot[chosen]
            tick()
        return LoopTimes(ttft=ttft, tpot=tpot)


def parts_of(study: Study) -> dict[str, np.ndarray]:
    """What is left out, by name. A quarter never shares a measurement with the rest."""
    cases = study.prepared.features.cases
    fold = np.random.default_rng(0).integers(_NUM_FOLDS, size=study.distinct.max() + 1)
    return {
        "a quarter left out": fold[study.distinct],
        "one system left out": np.array([case.system.name for case in cases]),
        "one model left out": np.array([case.model.name for case in cases]),
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m baton.planner.predict.fit")
    parser.add_argument("--data", type=Path, help="folder of tables; else BATON_DATA")
    parser.add_argument("--rows", type=Path, help=f"measured rows; else {SAMPLE} there")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "coefficients.json")
    parser.add_argument("--quick", action="store_true", help="no left-out parts")
    flags = parser.parse_args()
    console = Console(width=110)
    data = data_folder(flags.data)
    path = flags.rows or data / SAMPLE
    table = read_table(path)
    measured = [row for row in table.rows if row.measured("silicon_ttft_ms") > 0]
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("operator times", total=len(measured))
        found_rows = prepare_each(measured, data, partial(progress.advance, task))
        measured = [measured[place] for place in found_rows.places]
        study = Study(measured, found_rows.prepared)
        everything = np.ones(len(measured), bool)
        effects = study.fit(everything, _ITERATIONS)
        results = {"physics alone": study.predict({}), "in the sample": study.predict(effects)}
        for name, parts in {} if flags.quick else parts_of(study).items():
            task = progress.add_task(name, total=len(np.unique(parts)))
            results[name] = study.left_out(parts, partial(progress.advance, task))
    kept: dict[str, Accuracy] = {}
    for reason in found_rows.refused.values():
        console.print(f"left out: {reason}", markup=False, highlight=False)
    for name, times in results.items():
        print_errors(name, error_table(measured, times, study.ttft, study.tpot), console)
        kept[name] = accuracy(times, study.ttft, study.tpot, everything)
    found = Coefficients(
        source=f"{path.name}, fitted by python -m baton.planner.predict.fit",
        num_rows=len(measured),
        digest=hashlib.sha256(path.read_bytes()).hexdigest()[:16],
        accuracy=kept,
        effects=effects,
    )
    write_coefficients(flags.out, found)
    console.print(f"{len(effects)} effects, those that differ from none to {flags.out}")


if __name__ == "__main__":
    main()
