"""How long `baton trace` takes for a million events; the limit is stated before the run.

    python -m baton.bench.trace_read [--events N]

Requests of a split deployment, 41 events each, as three processes write them. Their times are
made up; reading, checking and folding do not depend on them.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import msgspec

from baton.telemetry.trace.command import read_source
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.summary import summarize

LIMIT_S = 10.0
"""For 1,000,000 events, on one core."""
_PER_EVENTS = 1_000_000
_NUM_LAYERS = 6
_GAP_US = 700


def request_events(number: int) -> list[TraceEvent]:
    """One request that prefills, moves a chunk for each layer, and decodes."""
    request_id, at_us = f"{number:032x}", number * _GAP_US
    events: list[TraceEvent] = []

    def say(place: str, name: str, **data: int | str) -> None:
        events.append(
            TraceEvent(
                at_us=at_us + 100 * len(events),
                place=place,
                name=name,
                request_id=request_id,
                generation=0 if name in ("received", "arrived") else 1,
                data=dict(data),
            )
        )

    say("router", "received", waited_us=80)
    say("router", "arrived", num_tokens=512)
    say("router", "routed", mode="disaggregated", prefill="prefill-0", decode="decode-1")
    say("decode-1", "reserved", visible_tokens=0, blocks=48)
    say("prefill-0", "prefill_queued", num_tokens=512)
    say("prefill-0", "prefill_started", cached_tokens=0)
    say("prefill-0", "prefill_running", num_rows=512)
    for layer in range(_NUM_LAYERS):
        say("prefill-0", "layer_ready", layer=layer)
        say("prefill-0", "chunk_moved", chunk_id=layer, nbytes=1 << 20, duration_us=90)
        say("decode-1", "chunk_arrived", chunk_id=layer)
        chunk = {"chunk_id": layer, "layer_start": layer, "num_layers": 1, "nbytes": 1 << 20}
        say("decode-1", "chunk_visible", **chunk)
    say("prefill-0", "prefill_done", num_tokens=512)
    say("decode-1", "all_visible")
    say("decode-1", "validated")
    counts = {"num_tokens": 512, "num_chunks": _NUM_LAYERS, "num_layers": _NUM_LAYERS}
    say("decode-1", "published", **counts, logical_nbytes=_NUM_LAYERS << 20)
    say("decode-1", "admitted", num_tokens=512)
    say("router", "published")
    say("router", "first_token")
    say("router", "first_written")
    say("decode-1", "finished", reason="length", num_tokens=64)
    say("router", "ended", state="FINISHED")
    return events


def write_trace(folder: Path, num_events: int) -> int:
    """Write about so many events as the processes of a deployment would; returns how many."""
    by_place: dict[str, list[TraceEvent]] = {}
    written = number = 0
    while written < num_events:
        for event in request_events(number):
            by_place.setdefault(event.place, []).append(event)
            written += 1
        number += 1
    encoder = msgspec.json.Encoder()
    for place, events in by_place.items():
        events.sort(key=lambda event: event.at_us)
        (folder / f"{place}.jsonl").write_bytes(encoder.encode_lines(events))
    return written


def main() -> int:
    """Print the limit, then what was measured; 1 where it is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=_PER_EVENTS)
    asked = parser.parse_args().events
    limit_s = LIMIT_S * asked / _PER_EVENTS
    print(f"limit: {limit_s:.1f} s for {asked} events: read, check, fold, sum up")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        num_events = write_trace(folder, asked)
        nbytes = sum(path.stat().st_size for path in folder.iterdir())
        wall, cpu = time.perf_counter(), time.process_time()
        told = read_source(name)
        summary = summarize(told.stories)
        wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    assert not told.violations and summary.num_requests == len(told.trace.by_request)
    verdict = "met" if cpu_s <= limit_s else "NOT met"
    print(
        f"{num_events} events of {summary.num_requests} requests, {nbytes / 1e6:.0f} MB: "
        f"{cpu_s:.2f} s of one core, {wall_s:.2f} s of wall at load {os.getloadavg()[0]:.1f}; "
        f"{num_events / cpu_s:.0f} events/s; {verdict}"
    )
    return 0 if cpu_s <= limit_s else 1


if __name__ == "__main__":
    raise SystemExit(main())
