"""`python -m baton.bench.predict_peer --rows FILE --data DIR --peer-python PYTHON`.

PYTHON has `aiconfigurator==0.12.0` installed. Prints the errors of both on the rows that both
predict, and why the peer cannot do the others.
"""

import argparse
import csv
import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from baton.bench.predict_peer.asked import asked_of
from baton.errors import ConfigError
from baton.hardware.operators.columns import Floats
from baton.planner.predict.case import case_of
from baton.planner.predict.closed_loop import LoopTimes
from baton.planner.predict.coefficients import PHYSICS, shipped
from baton.planner.predict.command import data_folder
from baton.planner.predict.errors import error_table, print_errors
from baton.planner.predict.fitting import predict
from baton.planner.predict.predict import measured_times, prepare_each
from baton.planner.predict.rows import Row, read_table

WORKER = Path(__file__).parent / "worker.py"


def ask(python: Path, rows: list[Row]) -> list[dict[str, object]]:
    """One answer for each row, an error for what is not asked."""
    asked = [asked_of(case_of(row)) for row in rows]
    lines = [json.dumps({"id": i, "kwargs": one}) for i, one in enumerate(asked) if one]
    answers: list[dict[str, object]] = [
        {"error": "worker counts are not given, or the peer has no such model"} for _ in rows
    ]
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("peer", total=len(lines))
        process = subprocess.Popen(
            [str(python), str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        with process:
            for line in lines:
                process.stdin.write(line + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
                if not answer:
                    raise ConfigError(f"{python}: ended early; it needs aiconfigurator==0.12.0")
                found = json.loads(answer)
                answers[found["id"]] = found
                progress.advance(task)
            process.stdin.close()
    return answers


def times_of(answers: list[dict[str, object]]) -> LoopTimes:
    """NaN where there is no answer."""

    def column(name: str) -> Floats:
        return np.array([float(str(one.get(name, "nan"))) for one in answers], np.float64)

    return LoopTimes(ttft=column("ttft"), tpot=column("tpot"))


def write(path: Path, rows: list[Row], answers: list[dict[str, object]]) -> None:
    """One line for each row."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "peer_ttft_ms", "peer_tpot_ms", "mode", "error"])
        for row, one in zip(rows, answers, strict=True):
            values = [one.get(name, "") for name in ("ttft", "tpot", "mode", "error")]
            writer.writerow([row.text("id"), *values])


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m baton.bench.predict_peer")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--peer-python", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="CSV of the peer's predictions")
    parser.add_argument("--every", type=int, default=1, help="only each so manieth row")
    flags = parser.parse_args()
    console = Console(width=110)
    rows = read_table(flags.rows).rows[:: flags.every]
    answers = ask(flags.peer_python, rows)
    if flags.out:
        write(flags.out, rows, answers)
    peer = times_of(answers)
    both = np.flatnonzero(np.isfinite(peer.ttft) & np.isfinite(peer.tpot) & (peer.tpot > 0))
    console.print(f"{len(both)} of {len(rows)} rows that the peer predicts")
    for text, num in Counter(str(one["error"]) for one in answers if "error" in one).most_common(8):
        console.print(f"  {num}: {text}", markup=False, highlight=False)
    chosen = [rows[i] for i in both]
    prepared, places, refused = prepare_each(chosen, data_folder(flags.data))
    for reason in refused.values():
        console.print(f"left out: {reason}", markup=False, highlight=False)
    chosen, both = [chosen[place] for place in places], both[places]
    ttft, tpot = measured_times(chosen)
    shown = {
        "AIConfigurator": LoopTimes(ttft=peer.ttft[both], tpot=peer.tpot[both]),
        "ours, nothing fitted": predict(prepared.features, prepared.labels, PHYSICS.effects),
        "ours, fitted": predict(prepared.features, prepared.labels, shipped().effects),
    }
    for name, times in shown.items():
        print_errors(name, error_table(chosen, times, ttft, tpot), console)


if __name__ == "__main__":
    main()
