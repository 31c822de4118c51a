"""The CSV that splitwise-sim writes and reads."""

from collections.abc import Iterator
from pathlib import Path

from baton.errors import ConfigError
from baton.workload.loaders.field import read_count, read_length, read_time_us
from baton.workload.loaders.rows import Format, Options, Tally
from baton.workload.loaders.table import has_columns, read_table
from baton.workload.request import WorkloadRequest

COLUMNS = ("request_id", "request_type", "arrival_timestamp", "prompt_size", "token_size")
GENERATION = 2
"""The request type of a generative request; its simulator has others."""
US_PER_S = 1_000_000


def read(path: Path, options: Options, tally: Tally) -> Iterator[WorkloadRequest]:
    """One request for each generative row."""
    for row in read_table(path, COLUMNS, optional=("batch_size",)):
        values = row.values
        kind = read_count(values["request_type"], "request_type", row.place)
        if kind != GENERATION:
            tally.leave_out(f"request_type = {kind}, not a generative request ({GENERATION})")
            continue
        if read_count(values.get("batch_size", "1"), "batch_size", row.place) != 1:
            raise ConfigError(
                f"{row.place}: batch_size = {values['batch_size']!r}; a request is one sequence "
                "here: write one row for each"
            )
        yield WorkloadRequest(
            arrival_us=read_time_us(
                values["arrival_timestamp"], "arrival_timestamp", row.place, unit_us=US_PER_S
            ),
            num_prompt_tokens=read_length(values["prompt_size"], "prompt_size", row.place),
            num_output_tokens=read_length(values["token_size"], "token_size", row.place),
        )


FORMAT = Format(
    name="splitwise",
    what=f"CSV with {', '.join(COLUMNS)}",
    recognise=lambda line: has_columns(line, COLUMNS),
    read=read,
    has_arrivals=lambda line: True,
)
