"""`python -m baton.planner.truth`: measured runs of vLLM beside their prediction from timings."""

import argparse
import csv
import sys
from pathlib import Path

from baton.errors import ConfigError
from baton.planner.truth.case import Case, read_cases
from baton.planner.truth.errors import compare
from baton.planner.truth.predict import Prediction, predict
from baton.planner.truth.table import describe
from baton.sim.reproduce.data import data_folder


def main(arguments: list[str] | None = None) -> int:
    """Prints a table for each case of the folder."""
    parser = argparse.ArgumentParser(prog="python -m baton.planner.truth", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with CASE.csv, CASE.meta.json and "
        "layer-profiles/, or one that holds vllm-truth/ (or BATON_DATA)",
    )
    parser.add_argument("--profiles", type=Path, help="layer timings, if they are elsewhere")
    parser.add_argument("--requests", type=Path, help="folder for a CSV of predicted requests")
    given = parser.parse_args(arguments)
    try:
        _run(given)
    except ConfigError as error:
        print(f"truth: {error}", file=sys.stderr)
        return 2
    return 0


def _run(given: argparse.Namespace) -> None:
    folder = data_folder(given.data)
    if not any(folder.glob("*.meta.json")) and (folder / "vllm-truth").is_dir():
        folder = folder / "vllm-truth"
    cases = read_cases(folder)
    profiles = given.profiles or folder / "layer-profiles"
    predict(cases[0], profiles)  # compiles, or finds what was compiled before
    for case in cases:
        found = predict(case, profiles)
        print(describe(case, found, compare(found.columns, case.measured)))
        if given.requests:
            _write(given.requests, case, found)


def _write(folder: Path, case: Case, found: Prediction) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{case.name}.predicted.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arrival_s", "prompt_tokens", "output_tokens", *found.columns])
        columns = [f"{name}" for name in found.columns]
        for row in range(len(case.arrival_us)):
            writer.writerow(
                [
                    f"{case.arrival_us[row] / 1e6:.6f}",
                    case.num_prompt[row],
                    case.num_output[row],
                    *(f"{found.columns[name][row]:.3f}" for name in columns),
                ]
            )


if __name__ == "__main__":
    sys.exit(main())
