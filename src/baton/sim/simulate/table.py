"""One row for each simulated request, as CSV or as Parquet; the name of the file says which."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baton.errors import ConfigError
from baton.goodput.record import RequestRecord
from baton.output_file import output_file
from baton.sim.fast.result import End, FastResult

Columns = Mapping[str, Sequence[Any]]
PARQUET, CSV = ".parquet", ".csv"


def check_table(path: Path) -> None:
    """Refuse, before anything is simulated, a table that could not be written."""
    if path.suffix not in (PARQUET, CSV):
        raise ConfigError(f"--table {path}: its name must end with {CSV} or {PARQUET}")
    if path.suffix == PARQUET:
        _pyarrow()


def write_table(path: Path, columns: Columns) -> None:
    """All columns are equally long; None is an empty cell."""
    check_table(path)
    if path.suffix == PARQUET:
        pyarrow = _pyarrow()
        from pyarrow import parquet

        with output_file(path, "--table") as place:
            parquet.write_table(pyarrow.table(dict(columns)), place)
        return
    with output_file(path, "--table") as place, place.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def columns_of_records(
    records: Sequence[RequestRecord], num_cached: Sequence[int]
) -> dict[str, list[Any]]:
    """What the clients of the production nodes saw."""
    return {
        "request_id": [one.request_id for one in records],
        "arrival_us": [one.scheduled_us for one in records],
        "prompt_tokens": [one.num_prompt_tokens for one in records],
        "output_tokens": [one.num_output_tokens for one in records],
        "cached_tokens": list(num_cached),
        "outcome": [str(one.outcome) for one in records],
        "error": [one.error for one in records],
        "mode": [one.mode for one in records],
        "ttft_us": [one.ttft_us for one in records],
        "tpot_us": [one.tpot_us for one in records],
        "end_us": [one.end_us for one in records],
    }


def columns_of_result(result: FastResult) -> dict[str, list[Any]]:
    """What the fast host knows of each request; times that never came are None."""
    names = [*result.workers.names, None]  # -1, no worker, is the last one
    return {
        "request_id": [f"r{index}" for index in range(len(result.arrival_us))],
        "arrival_us": result.arrival_us.tolist(),
        "prompt_tokens": result.num_prompt.tolist(),
        "output_tokens": result.num_output.tolist(),
        "cached_tokens": result.num_cached.tolist(),
        "moved_tokens": result.num_moved.tolist(),
        "preemptions": result.num_preempted.tolist(),
        "outcome": [End(code).name.lower() for code in result.end.tolist()],
        "prefill_worker": [names[index] for index in result.prefill_worker.tolist()],
        "decode_worker": [names[index] for index in result.decode_worker.tolist()],
        "prefill_start_us": _known(result.prefill_start_us),
        "prefill_end_us": _known(result.prefill_end_us),
        "moved_us": _known(result.moved_us),
        "ttft_us": _known(result.ttft_us),
        "tpot_us": _known(result.tpot_us),
        "end_us": _known(result.last_us),
    }


def _known(values: Any) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigError(
            "--table: Parquet needs pyarrow: pip install 'kvbaton[plan]', or name a .csv"
        ) from error
    return pyarrow
