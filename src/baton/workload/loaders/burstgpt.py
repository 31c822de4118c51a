"""BurstGPT: seconds, lengths, and rows without a response, which are failures of its service."""

from collections.abc import Iterator
from pathlib import Path

from baton.workload.loaders.field import read_count, read_length, read_time_us
from baton.workload.loaders.rows import Format, Options, Tally
from baton.workload.loaders.table import has_columns, read_table
from baton.workload.request import WorkloadRequest

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
SESSION = "Session ID"
US_PER_S = 1_000_000


def read(path: Path, options: Options, tally: Tally) -> Iterator[WorkloadRequest]:
    """One request for each row that was answered."""
    for row in read_table(path, COLUMNS, optional=(SESSION,)):
        values = row.values
        if read_count(values["Response tokens"], "Response tokens", row.place) == 0:
            tally.leave_out("Response tokens = 0, a failure of the traced service")
            continue
        yield WorkloadRequest(
            arrival_us=read_time_us(values["Timestamp"], "Timestamp", row.place, unit_us=US_PER_S),
            num_prompt_tokens=read_length(values["Request tokens"], "Request tokens", row.place),
            num_output_tokens=read_length(values["Response tokens"], "Response tokens", row.place),
            session_id=values.get(SESSION, ""),
        )


FORMAT = Format(
    name="burstgpt",
    what=f"CSV with {', '.join(COLUMNS)}",
    recognise=lambda line: has_columns(line, COLUMNS),
    read=read,
    has_arrivals=lambda line: True,
)
