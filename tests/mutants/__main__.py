"""`python -m tests.mutants`: plants every bug of the catalogue; fails when one is not noticed."""

import argparse
import math
import os
import signal
import sys
import time

from tests.mutants.catalogue import CATALOGUE, find
from tests.mutants.hunting import CONTROL, Verdict
from tests.mutants.mutant import StaleMutant
from tests.mutants.run import TIMEOUT_S, run

MAX_JOBS = 256
INTERRUPTED = 130


def main() -> int:
    """Print a table; 1 when a mutant survives, is caught by a stranger, or cannot be judged."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these mutants")
    parser.add_argument("--jobs", type=int, default=0, help="processes; default: one per core")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="S", help="per mutant")
    parser.add_argument("--verbose", action="store_true", help="also what the killer said")
    asked = parser.parse_args()
    if not 0 <= asked.jobs <= MAX_JOBS:
        parser.error(f"--jobs is {asked.jobs}; use 1 to {MAX_JOBS}, or 0 for one per core")
    if not 0 < asked.timeout < math.inf:
        parser.error(f"--timeout is {asked.timeout:g}; use a positive number of seconds")
    try:
        names = [find(name).name for name in asked.only or ()] or [m.name for m in CATALOGUE]
    except StaleMutant as error:
        parser.error(str(error))
    began = time.monotonic()

    def show(verdict: Verdict) -> None:
        print(_row(verdict), flush=True)
        if asked.verbose and verdict.detail:
            print(f"    {verdict.detail}")

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an end in order, as by Ctrl-C
    verdicts = run([CONTROL, *names], jobs=asked.jobs, timeout_s=asked.timeout, progress=show)
    faults = [verdict for verdict in verdicts if verdict.fault]
    elapsed_s = time.monotonic() - began
    killed = len([v for v in verdicts if v.name != CONTROL and not v.fault])
    spent = os.times()
    cpu_s = sum((spent.user, spent.system, spent.children_user, spent.children_system))
    print(
        f"{killed} of {len(names)} planted bugs noticed by their killers in {elapsed_s:.0f} s "
        f"({cpu_s:.0f} s of processor time)"
    )
    for verdict in faults:
        print(f"{verdict.name}: {verdict.fault}")
    return 1 if faults else 0


def _row(verdict: Verdict) -> str:
    outcome = "FAULT " + verdict.fault if verdict.fault else verdict.killed_by or "clean"
    return f"{verdict.name:32} {verdict.seconds:5.1f} s  {verdict.cost:22} {outcome}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted: not every planted bug was judged", file=sys.stderr)
        sys.exit(INTERRUPTED)
