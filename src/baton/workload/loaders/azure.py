"""The Azure LLM inference traces: wall-clock time stamps and two lengths."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from baton.errors import ConfigError
from baton.workload.loaders.field import read_length
from baton.workload.loaders.rows import Format, Options, Tally
from baton.workload.loaders.table import has_columns, read_table
from baton.workload.request import WorkloadRequest

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def read(path: Path, options: Options, tally: Tally) -> Iterator[WorkloadRequest]:
    """One request for each row."""
    for row in read_table(path, COLUMNS):
        yield WorkloadRequest(
            arrival_us=_time_us(row.values["TIMESTAMP"], row.place),
            num_prompt_tokens=read_length(row.values["ContextTokens"], "ContextTokens", row.place),
            num_output_tokens=read_length(
                row.values["GeneratedTokens"], "GeneratedTokens", row.place
            ),
        )


def _time_us(text: str, place: str) -> int:
    """Since 1970; the trace of 2023 names no zone and the one of 2024 does, so none is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{place}: TIMESTAMP = {text!r} is no time like '2023-11-16 18:15:46.6805900'; "
            "correct the row"
        ) from None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


FORMAT = Format(
    name="azure",
    what=f"CSV with {', '.join(COLUMNS)}",
    recognise=lambda line: has_columns(line, COLUMNS),
    read=read,
    has_arrivals=lambda line: True,
)
