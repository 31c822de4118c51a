"""Plain CSV of prompt and output lengths, with `arrival_s` or without arrivals."""

from collections.abc import Iterator
from pathlib import Path

from baton.errors import ConfigError
from baton.workload.loaders.field import read_length, read_time_us
from baton.workload.loaders.rows import Format, Options, Tally
from baton.workload.loaders.table import has_columns, read_table
from baton.workload.loaders.text import first_line
from baton.workload.request import WorkloadRequest

COLUMNS = (
    ("prompt_tokens", "output_tokens"),
    ("num_prefill_tokens", "num_decode_tokens"),
    ("prompt_tokens", "canonical_solution_tokens"),
)
"""The names in use for the two lengths, by Vidur and Sarathi-Serve among others."""
ARRIVAL = "arrival_s"
US_PER_S = 1_000_000


def read(path: Path, options: Options, tally: Tally) -> Iterator[WorkloadRequest]:
    """One request for each row."""
    header = first_line(path)
    columns = next((names for names in COLUMNS if has_columns(header, names)), None)
    if columns is None:
        known = " or ".join(" and ".join(names) for names in COLUMNS)
        raise ConfigError(f"{path}, line 1: no columns {known}; the header is {header[:200]!r}")
    prompt, output = columns
    for row in read_table(path, columns, optional=(ARRIVAL,)):
        values = row.values
        yield WorkloadRequest(
            arrival_us=read_time_us(values.get(ARRIVAL, "0"), ARRIVAL, row.place, unit_us=US_PER_S),
            num_prompt_tokens=read_length(values[prompt], prompt, row.place),
            num_output_tokens=read_length(values[output], output, row.place),
        )


FORMAT = Format(
    name="lengths",
    what="CSV with " + " or ".join(", ".join(names) for names in COLUMNS) + f" [, {ARRIVAL}]",
    recognise=lambda line: any(has_columns(line, names) for names in COLUMNS),
    read=read,
    has_arrivals=lambda line: has_columns(line, (ARRIVAL,)),
)
