"""`make bench-handoff`: every figure of serving beside its limit, measured in one run."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.table import Table

from baton.bench.exposed import measure_exposed
from baton.bench.gateway import measure_gateway
from baton.bench.overhead import measure_overhead
from baton.bench.payload import measure_payload
from baton.bench.steps import ONE_THREAD, Case

SECTIONS = ("payload", "exposed", "overhead", "engine", "gateway")
_PAYLOAD_LIMITS = {
    "shm": "ratio 0.75",
    "nixl": "ratio 0.77 (1.3 times a copy) from 16 MiB on, checksum on",
}
_CASES = tuple(Case(batch=batch, context=512) for batch in (0, 1, 4, 16))


def main(arguments: list[str] | None = None) -> None:
    """Run the chosen sections and print each figure with its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--only", choices=SECTIONS, action="append")
    parser.add_argument("--data-plane", choices=("shm", "nixl"), default="shm", help="of payload")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    console = Console()
    figures: dict[str, Any] = {}
    runners: dict[str, Callable[[], Any]] = {
        "payload": lambda: _payload(console, options.rounds, options.data_plane),
        "exposed": lambda: _exposed(console, options.model, options.rounds),
        "overhead": lambda: _overhead(console, options.model, options.rounds),
        "engine": lambda: _engine(console, options.model),
        "gateway": lambda: _gateway(console),
    }
    for section in options.only or SECTIONS:
        console.rule(section)
        figures[section] = runners[section]()
    if options.json:
        with open(options.json, "wb") as target:
            target.write(msgspec.json.format(msgspec.json.encode(figures)))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _payload(console: Console, rounds: int, data_plane: Literal["shm", "nixl"]) -> Any:
    limit = _PAYLOAD_LIMITS[data_plane]
    table = _table(
        f"K/V payload by {data_plane} against one np.copyto of the same bytes; limit: {limit}",
        "MiB", "checksum", "GB/s", "memcpy GB/s", "ratio", "copy+hash alone", "one ms", "core",
    )  # fmt: skip
    rows = []
    for checksum in (True, False):
        for row in measure_payload(
            checksum=checksum, num_rounds=max(5, rounds), data_plane=data_plane
        ):
            rows.append(row)
            table.add_row(
                f"{row.nbytes >> 20}",
                "on" if checksum else "off",
                f"{row.payload_gbps:.1f}",
                f"{row.memcpy_gbps:.1f}",
                f"{row.ratio:.2f}",
                f"{row.ceiling:.2f}",
                f"{row.latency_us / 1000:.2f}",
                "quiet" if row.memcpy_cpu_share >= 0.9 else "disturbed",
            )
    console.print(table)
    return rows


def _exposed(console: Console, model: str, rounds: int) -> Any:
    rows = asyncio.run(measure_exposed(model, (128, 512, 2000), rounds, []))
    table = _table(
        "Exposed transfer after the last layer is ready; limit (layer): one layer + 2 ms",
        "schedule", "prompt", "MiB", "exposed ms", "limit ms", "to publication ms",
    )  # fmt: skip
    for row in rows:
        limit = f"{row.limit_ms:.2f}" if row.schedule == "layer" else "-"
        table.add_row(
            row.schedule, str(row.prompt_tokens), f"{row.payload_mib:.1f}",
            f"{row.exposed_ms:.2f}", limit, f"{row.publish_ms:.2f}",
        )  # fmt: skip
    console.print(table)
    return rows


def _overhead(console: Console, model: str, rounds: int) -> Any:
    rows = asyncio.run(measure_overhead(model, list(_CASES), rounds, []))
    table = _table(
        "Served step against the bare engine on the same core; limit: 1.05 prefill, 1.10 decode",
        "step", "context", "bare ms", "served ms", "ratio", "limit",
    )  # fmt: skip
    for row in rows:
        table.add_row(
            row.case.name, str(row.case.context), f"{row.bare_ms:.1f}", f"{row.served_ms:.1f}",
            f"{row.ratio:.3f}", f"{row.limit:.2f}",
        )  # fmt: skip
    console.print(table)
    return rows


def _engine(console: Console, model: str) -> Any:
    figures = _child("baton.engine.bench", model)
    table = _table(
        "The engine against transformers, CPU time on one core; limit: ratio 1.0",
        "step", "ours ms", "transformers ms", "ratio", "matrix products ms", "bandwidth limit ms",
    )  # fmt: skip
    for name, row in figures.items():
        if isinstance(row, dict):
            table.add_row(
                name, str(row["ours_ms"]), str(row["transformers_ms"]), str(row["ratio"]),
                str(row.get("linears_ms", "-")), str(row.get("bandwidth_limit_ms", "-")),
            )  # fmt: skip
    console.print(table)
    prefill = figures["prefill"]
    console.print(figures["deterministic"])
    console.print(
        f"cost of determinism in prefill attention: {prefill['ours_ms']} ms on the canonical grid, "
        f"{prefill['without_grid_ms']} ms without"
    )
    figures["continuous"] = _continuous(console, model)
    return figures


def _continuous(console: Console, model: str) -> Any:
    figures = _child("baton.engine.bench_continuous", model)
    table = _table(
        "Whole batches against transformers' continuous batching; limit: ratio 1.0",
        "prompts of 64, 8 new tokens", "ours s", "transformers s", "ratio",
    )  # fmt: skip
    for name, row in figures.items():
        table.add_row(
            name, f"{row['ours_s']:.2f}", f"{row['transformers_s']:.2f}", f"{row['ratio']:.3f}"
        )
    console.print(table)
    return figures


def _child(module: str, model: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, model],
        stdout=subprocess.PIPE,
        env={**os.environ, **ONE_THREAD},
        check=True,
    )
    return json.loads(done.stdout)


def _gateway(console: Console) -> Any:
    figures = measure_gateway()
    table = _table(
        "The gateway alone on one core; limit: 5,000 streamed tokens/s", "figure", "value"
    )
    for name, value in figures.items():
        table.add_row(name, f"{value:,.2f}")
    console.print(table)
    return figures


if __name__ == "__main__":
    main()
