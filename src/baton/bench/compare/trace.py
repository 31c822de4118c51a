"""What the deployment's own trace says of each request, read after it is down."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from baton.bench.compare.record import Record
from baton.core.layout import KVLayout
from baton.runtime.trace_log import TraceEvent


class TraceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Per request id: the prefix the destination held, and attempts that came to nothing."""

    visible_tokens: Mapping[str, int]
    failed_attempts: Mapping[str, int]


def read_traces(folder: Path) -> TraceFacts:
    """Read every trace file of a deployment."""
    visible: dict[str, int] = {}
    failed: Counter[str] = Counter()
    for event in _events(sorted(folder.glob("*.jsonl"))):
        if event.name == "reserved":
            visible[event.request_id] = int(event.data["visible_tokens"])
        elif event.name == "attempt_failed":
            failed[event.request_id] += 1
    return TraceFacts(visible_tokens=visible, failed_attempts=failed)


def _events(files: Iterable[Path]) -> Iterable[TraceEvent]:
    decoder = msgspec.json.Decoder(TraceEvent)
    for file in files:
        for line in file.read_bytes().splitlines():
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError:
                continue  # the last line of a worker that was killed


def with_facts(record: Record, request_id: str, facts: TraceFacts, layout: KVLayout) -> Record:
    """The record with what the trace adds; bytes are those of the exact transfer set."""
    visible = facts.visible_tokens.get(request_id, -1)
    moved = -1
    if visible >= 0:
        blocks = layout.num_blocks(record.prompt_tokens) - visible // layout.block_size
        moved = blocks * layout.bytes_per_block
    return msgspec.structs.replace(
        record,
        visible_tokens=visible,
        moved_nbytes=moved,
        num_failed_attempts=facts.failed_attempts.get(request_id, 0),
    )
