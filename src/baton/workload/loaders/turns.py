"""Token counts of the turns of conversations: the first question and the answer that follows."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from baton.workload.loaders.field import read_count
from baton.workload.loaders.rows import Format, Options, Tally
from baton.workload.loaders.sharegpt import NO_PAIR, NO_TOKENS, first_pair
from baton.workload.loaders.table import has_columns, read_table
from baton.workload.request import WorkloadRequest

COLUMNS = ("conv", "turn", "role", "tokens")


def read(path: Path, options: Options, tally: Tally) -> Iterator[WorkloadRequest]:
    """One request for each conversation that has a question and an answer."""
    rows = read_table(path, COLUMNS)
    for conversation, turns in groupby(rows, key=lambda row: row.values["conv"]):
        counted = [
            (row.values["role"], read_count(row.values["tokens"], "tokens", row.place))
            for row in turns
        ]
        pair = first_pair(counted)
        if pair is None:
            tally.leave_out(NO_PAIR)
        elif 0 in pair:
            tally.leave_out(NO_TOKENS)
        else:
            yield WorkloadRequest(
                arrival_us=0,
                num_prompt_tokens=pair[0],
                num_output_tokens=pair[1],
                session_id=conversation,
            )


FORMAT = Format(
    name="turns",
    what=f"CSV with {', '.join(COLUMNS)}",
    recognise=lambda line: has_columns(line, COLUMNS),
    read=read,
    has_arrivals=lambda line: False,
)
