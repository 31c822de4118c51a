"""What the deployment's own trace says of each request, read after it is down."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from baton.bench.compare.record import Record
from baton.core.layout import KVLayout
from baton.telemetry.trace.event import TraceEvent


class TraceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Per request id, what a client cannot see."""

    prompt_tokens: Mapping[str, int]
    visible_tokens: Mapping[str, int]
    """Prefix that the destination held when it reserved."""
    cached_tokens: Mapping[str, int]
    """Prefix that the source reused."""
    failed_attempts: Mapping[str, int]
    preemptions: Mapping[str, int]


def read_traces(folder: Path) -> TraceFacts:
    """Read every trace file of a deployment."""
    prompts: dict[str, int] = {}
    visible: dict[str, int] = {}
    cached: dict[str, int] = {}
    failed: Counter[str] = Counter()
    preempted: Counter[str] = Counter()
    for event in _events(sorted(folder.glob("*.jsonl"))):
        match event.name:
            case "arrived":
                prompts[event.request_id] = int(event.data["num_tokens"])
            case "reserved":
                visible[event.request_id] = int(event.data["visible_tokens"])
            case "prefill_started":
                cached[event.request_id] = int(event.data["cached_tokens"])
            case "attempt_failed":
                failed[event.request_id] += 1
            case "preempted":
                preempted[event.request_id] += 1
    return TraceFacts(
        prompt_tokens=prompts,
        visible_tokens=visible,
        cached_tokens=cached,
        failed_attempts=failed,
        preemptions=preempted,
    )


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
    if visible >= 0 and request_id in facts.prompt_tokens:
        blocks = layout.num_blocks(facts.prompt_tokens[request_id]) - visible // layout.block_size
        moved = blocks * layout.bytes_per_block
    return msgspec.structs.replace(
        record,
        visible_tokens=visible,
        cached_tokens=facts.cached_tokens.get(request_id, record.cached_tokens),
        moved_nbytes=moved,
        num_failed_attempts=facts.failed_attempts.get(request_id, 0),
        num_preemptions=facts.preemptions.get(request_id, 0),
    )
