"""Lanes are read from what UCX writes, including a table cut in two by the reader."""

import os

from baton.runtime.dataplane.nixl.lanes import UNKNOWN, LaneLog

TABLE = """\
[1796066662.1] [vm:7 :0]   +--------+-------------+------------+
[1796066662.1] [vm:7 :0]   | a {where} cfg#{number}            |
[1796066662.1] [vm:7 :0]   | remote memory {verb}*(multi) from host |
[1796066662.1] [vm:7 :0]   +--------+-------------+------------+
[1796066662.1] [vm:7 :0]   | Range  | Description | Config     |
[1796066662.1] [vm:7 :0]   +--------+-------------+------------+
[1796066662.1] [vm:7 :0]   | 0..92  | short       | other/x    |
[1796066662.1] [vm:7 :0]   | 93..inf | zero-copy  | {lane}/memory |
[1796066662.1] [vm:7 :0]   +--------+-------------+------------+
"""


def _table(where: str, number: int, verb: str, lane: str) -> str:
    return TABLE.format(where=where, number=number, verb=verb, lane=lane)


def _write(log: LaneLog, text: str) -> None:
    handle = os.open(log.path, os.O_WRONLY | os.O_APPEND)
    os.write(handle, text.encode())
    os.close(handle)


def test_the_lane_of_large_transfers_by_operation():
    log = LaneLog()
    _write(log, _table("self", 0, "write by ucp_put", "cma"))
    assert log.read() == []
    assert log.lane_of("write", frozenset()) == UNKNOWN, "its own memory is nobody's lane"
    _write(log, _table("intra-node", 1, "write by ucp_put", "cma"))
    _write(log, _table("intra-node", 1, "read by ucp_get", "tcp"))
    log.read()
    assert log.lane_of("write", frozenset()) == "cma"
    assert log.lane_of("read", frozenset()) == "tcp"


def test_a_second_kind_of_peer_is_told_from_the_first():
    log = LaneLog()
    _write(log, _table("intra-node", 1, "write by ucp_put", "cma"))
    log.read()
    before = log.explained("write")
    text = _table("inter-node", 2, "write by ucp_put", "tcp")
    _write(log, text[:200])
    log.read()
    _write(log, text[200:] + "[1.0] [vm:7 :0] sock.c:1 UCX  WARN something is odd\n")
    (problem,) = log.read()
    assert problem.endswith("something is odd")
    assert log.lane_of("write", before) == "tcp"
    assert log.lane_of("write", log.explained("write")) == "cma+tcp", "it may be either"
