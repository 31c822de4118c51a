"""Runs in the peer's own Python, without any of ours: one estimate for each line of stdin.

A line is {"id": ..., "kwargs": {...}}; the answer is the id with ttft and tpot in milliseconds, or
with the error. Operators that the peer has not measured are estimated by its own formulas.
"""

import importlib
import json
import logging
import sys

MODES = ("SILICON", "HYBRID")


def estimate(kwargs: dict[str, object]) -> dict[str, object]:
    """By measured tables alone if they do, else with formulas for what they lack."""
    api = importlib.import_module("aiconfigurator.cli.api")
    error = ""
    for mode in MODES:
        try:
            found = api.cli_estimate(database_mode=mode, **kwargs)
            return {"ttft": float(found.ttft), "tpot": float(found.tpot), "mode": mode}
        except Exception as raised:  # any of the peer's: the row is told as one it cannot do
            error = error or f"{type(raised).__name__}: {raised}"
    return {"error": error.splitlines()[0][:200] if error else "no answer"}


def main() -> None:
    """Answers on the real stdout; what the peer prints goes to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    logging.disable(logging.CRITICAL)
    known: dict[str, dict[str, object]] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        key = json.dumps(asked["kwargs"], sort_keys=True)
        if key not in known:
            known[key] = estimate(asked["kwargs"])
        print(json.dumps({"id": asked["id"], **known[key]}), file=answers, flush=True)


if __name__ == "__main__":
    main()
