"""`python -m baton.bench.network`: handoffs over NIXL and tcp, beside raw NIXL; needs root."""

import argparse
import os

from baton.bench.network.measure import NetworkRow, measure_network
from baton.bench.payload import MIB

LIMIT = 2.0
"""Times what raw NIXL takes."""


def render(rows: list[NetworkRow]) -> str:
    """Lay the rows out as a table."""
    lines = ["  MiB  checksum  handoff GB/s  raw NIXL GB/s  time of raw"]
    lines += [
        f"{row.nbytes / MIB:5.0f}  {'on' if row.checksum else 'off':>8}  {row.ours_gbps:12.2f}  "
        f"{row.raw_gbps:13.2f}  {row.ratio:11.2f}"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table with checksums on and off, beside the limit."""
    parser = argparse.ArgumentParser(prog="python -m baton.bench.network", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds per size")
    arguments = parser.parse_args()
    print(f"limit: {LIMIT} times the time of raw NIXL; load {os.getloadavg()[0]:.1f}")
    rows = [
        row
        for checksum in (True, False)
        for row in measure_network(checksum=checksum, num_rounds=arguments.rounds)
    ]
    print(render(rows))


if __name__ == "__main__":
    main()
