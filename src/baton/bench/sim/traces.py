"""The workloads, from the user's data folder, as one file of JSON lines for everybody to read."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from baton.errors import ConfigError
from baton.workload.load import load_trace

TOKENS_PER_HASH = 512
CONVERSATION_TICK_US = 3_000_000
"""The trace stamps arrivals every 3 s: spread, they are a Poisson process again."""
_CSV = {
    "w1": "bench-inputs/azconv_poisson_r1_n10000.csv",
    "w3": "bench-inputs/sharegptlike_poisson_r1_n5000.csv",
}
_MOONCAKE = "mooncake/conversation_trace.jsonl.gz"
_CONSTANT = {"constant": (100_000, 64.0), "million": (1_000_000, 500.0)}
"""Requests of 1024/128 and their rate."""
CONSTANT_LENGTHS = (1024, 128)
_SEED = 1

Row = tuple[float, int, int, tuple[int, ...] | None]
"""Arrival in ms, prompt, answer, hash ids or None: blocks that nobody shares."""


def data_file(folder: Path, name: str) -> Path:
    """Raises ConfigError if it is not there."""
    path = folder / name
    if not path.exists():
        raise ConfigError(f"{path}: no such file; name a folder that holds {name} with --data")
    return path


def write_trace(name: str, folder: Path, target: Path) -> Path:
    """`w1-r16-1000` is the first 1,000 of W1 at 16 requests/s. Raises ConfigError."""
    path = target / f"{name}.jsonl"
    if not path.exists():
        next_id = 0
        with path.open("w") as stream:
            for at_ms, num_prompt, num_output, ids in _rows(name, folder):
                count = -(-num_prompt // TOKENS_PER_HASH)
                if ids is None:
                    ids = tuple(range(next_id, next_id + count))
                    next_id += count
                line = {
                    "timestamp": at_ms,
                    "input_length": num_prompt,
                    "output_length": num_output,
                    "hash_ids": ids,
                }
                stream.write(json.dumps(line) + "\n")
    return path


def _rows(name: str, folder: Path) -> Iterator[Row]:
    if name in _CONSTANT:
        for at_us in constant_arrivals_us(name):
            yield float(at_us) / 1000, *CONSTANT_LENGTHS, None
    elif name == "w6":
        trace = load_trace(data_file(folder, _MOONCAKE), tick_us=CONVERSATION_TICK_US)
        for one in trace.requests:
            yield (
                one.arrival_us / 1000,
                one.num_prompt_tokens,
                max(1, one.num_output_tokens),
                one.hash_ids,
            )
    else:
        yield from _table_rows(name, folder)


def _table_rows(name: str, folder: Path) -> Iterator[Row]:
    table, rate, *most = name.split("-")
    limit = int(most[0]) if most else None
    with data_file(folder, _CSV[table]).open() as stream:
        for number, row in enumerate(csv.DictReader(stream)):
            if number == limit:
                return
            at_ms = float(row["arrival_s"]) * 1000 / float(rate.removeprefix("r"))
            yield at_ms, int(row["prompt_tokens"]), max(1, int(row["output_tokens"])), None


def constant_arrivals_us(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Poisson arrivals of the made-up workloads, the same in every run."""
    count, rate = _CONSTANT[name]
    return np.cumsum(np.random.default_rng(_SEED).exponential(1e6 / rate, count))
