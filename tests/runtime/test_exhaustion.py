"""Full disks and missing file descriptors: what cannot be done is dropped or tried again."""

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from baton.core.effects import Trace
from baton.errors import ConfigError, RemoteProtocolError
from baton.runtime.channel import ControlChannel, ipc_endpoint
from baton.runtime.dataplane import Arena, PutOrder, Received, ShmDataPlane
from baton.runtime.trace_log import TraceLog
from baton.telemetry.trace.event import TraceEvent

NBYTES = 1 << 16


def event(number: int) -> Trace:
    return Trace(name="step", request_id=f"r{number}", generation=1, data={"n": number})


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """No file can be opened inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_full_disk_drops_events_and_nothing_else(tmp_path, capsys):
    path = tmp_path / "full.jsonl"
    path.symlink_to("/dev/full")
    log = TraceLog("here", str(path))
    for number in range(3):
        log.record(event(number), number)
    log.close()
    assert log.num_dropped == 3
    said = capsys.readouterr().err
    assert said.count(str(path)) == 1 and "No space left" in said


def test_a_short_write_loses_its_own_line_only(tmp_path):
    path = tmp_path / "trace.jsonl"
    log = TraceLog("here", str(path))
    log.record(event(0), 0)
    size = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))  # room for ten bytes more
    try:
        log.record(event(1), 1)
        log.record(event(2), 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.record(event(3), 3)
    log.record(event(4), 4)
    log.close()
    assert log.num_dropped == 2
    lines = path.read_bytes().splitlines()
    whole = []
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError):
            whole.append(msgspec.json.decode(line, type=TraceEvent).request_id)
    assert whole == ["r0", "r3", "r4"] and len(lines) == 4


def test_a_trace_file_in_no_folder_is_refused_by_name():
    with pytest.raises(ConfigError, match="/no/such/folder"):
        TraceLog("here", "/no/such/folder/trace.jsonl")


def test_a_trace_file_without_a_descriptor_records_nothing(tmp_path):
    with no_descriptors():
        log = TraceLog("here", str(tmp_path / "trace.jsonl"))
    log.record(event(0), 0)
    assert log.num_dropped == 1
    log.close()


async def test_a_way_to_a_peer_without_a_descriptor_is_refused_and_works_later(tmp_path):
    a = ControlChannel("a", 1, ipc_endpoint(Path(tmp_path), "a"))
    b = ControlChannel("b", 1, ipc_endpoint(Path(tmp_path), "b"))
    with no_descriptors(), pytest.raises(RemoteProtocolError, match="no way to b"):
        a.connect("b", b.endpoint)
    a.connect("b", b.endpoint)
    a.close()
    b.close()


def test_planes_meet_once_descriptors_are_back():
    arenas = [Arena.create(name, NBYTES, epoch=1) for name in ("source", "destination")]
    source, destination = ShmDataPlane(), ShmDataPlane()
    try:
        here, there = source.register(arenas[0]), destination.register(arenas[1])
        with no_descriptors(), pytest.raises(RemoteProtocolError):
            source.connect(there)
        source.connect(there)
        destination.connect(here)
        order = PutOrder(
            peer_id="destination",
            peer_epoch=1,
            reservation_id=1,
            chunk_id=1,
            direction="write",
            runs=((0, 0, 100),),
        )
        with no_descriptors():
            source.put(order)
            # The connection cannot be accepted now; it waits, and this does not fail.
            assert destination.poll() == []
        arrived = []
        for _ in range(100):
            arrived += [c for c in destination.poll() if isinstance(c, Received)]
            if arrived:
                break
            time.sleep(0.01)
        assert [c.chunk_id for c in arrived] == [1]
    finally:
        for plane in (source, destination):
            plane.close()
        for arena in arenas:
            arena.close()
