"""Mooncake's JSON lines: time in ms, lengths, and one id for each 512 tokens of the prefix."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from baton.errors import ConfigError
from baton.workload.loaders.field import read_count, read_length, read_time_us
from baton.workload.loaders.rows import Format, Options, Tally
from baton.workload.loaders.text import read_lines
from baton.workload.request import WorkloadRequest

TOKENS_PER_HASH = 512
REQUIRED = ("timestamp", "input_length", "output_length")
US_PER_MS = 1000


def recognise(line: str) -> bool:
    """Whether the first line is such an object."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        # A long first line is cut off before it is judged; its first fields still tell.
        return line.startswith("{") and all(f'"{name}"' in line for name in REQUIRED)
    return isinstance(row, dict) and set(REQUIRED) <= set(row)


def read(path: Path, options: Options, tally: Tally) -> Iterator[WorkloadRequest]:
    """One request for each line."""
    for line in read_lines(path):
        place = f"{path}, line {line.number}"
        row = _parse(line, place)
        num_prompt_tokens = read_length(row["input_length"], "input_length", place)
        yield WorkloadRequest(
            arrival_us=read_time_us(row["timestamp"], "timestamp", place, unit_us=US_PER_MS),
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=read_length(row["output_length"], "output_length", place),
            hash_ids=_hash_ids(row.get("hash_ids", []), num_prompt_tokens, place),
            session_id=str(row.get("session_id", "")),
        )


def _parse(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(
            f"{place}: not a JSON object ({problem}); the line is cut off or this is another format"
        ) from None
    if not isinstance(row, dict):
        raise ConfigError(f"{place}: {line[:40]!r} is not a JSON object; this is another format")
    for name in REQUIRED:
        if name not in row:
            raise ConfigError(
                f"{place}: no field {name!r}; a Mooncake line has {', '.join(REQUIRED)} "
                f"and this one {', '.join(map(str, row))[:200]}"
            )
    return row


def _hash_ids(value: object, num_prompt_tokens: int, place: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"{place}: hash_ids = {str(value)[:40]!r} is not a list of ids")
    ids = tuple(read_count(one, "hash_ids", place) for one in value)
    num_blocks = -(-num_prompt_tokens // TOKENS_PER_HASH)
    # The last, partly filled block may go without an id; anything else is another block size.
    if ids and len(ids) not in (num_blocks, num_prompt_tokens // TOKENS_PER_HASH):
        raise ConfigError(
            f"{place}: hash_ids has {len(ids)} ids for input_length = {num_prompt_tokens}, "
            f"which at {TOKENS_PER_HASH} tokens an id has {num_blocks}; "
            f"hash the prompts in blocks of {TOKENS_PER_HASH} or remove hash_ids"
        )
    return ids


FORMAT = Format(
    name="mooncake",
    what=f"JSON lines with {', '.join(REQUIRED)}, hash_ids",
    recognise=recognise,
    read=read,
    has_arrivals=lambda line: True,
    tokens_per_hash=TOKENS_PER_HASH,
)
