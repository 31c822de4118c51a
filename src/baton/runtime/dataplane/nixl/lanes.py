"""Which way UCX really takes, read from the tables in which it explains its choices.

UCX chooses a lane for each pair of processes by itself and says nothing when it is the slow one: a
container's border moves a pair from the host's memory to tcp. It prints one table for each kind of
peer and operation, the first time that it is used.
"""

import ctypes
import os
import re
from typing import Literal

Operation = Literal["write", "read"]

_CONTENT = re.compile(r"^\[[^\]]*\] \[[^\]]*\]\s*(.*)$")
_TITLE = re.compile(r"(?P<where>self|intra-node|inter-node) cfg#(?P<number>\d+)")
_OPERATIONS: dict[str, Operation] = {
    "remote memory write": "write",
    "remote memory read": "read",
}
_PROBLEM = re.compile(r"\b(WARN|ERROR|FATAL)\b")
UNKNOWN = "unknown"
MEMORY_LANES = frozenset({"cma", "knem", "xpmem", "sysv", "posix", "cuda_ipc", "rocm_ipc", "self"})
"""Lanes within one host that do not go through a socket."""


_LOG: "list[LaneLog]" = []


def process_log() -> "LaneLog":
    """The one log of this process: the library opens its log once."""
    if not _LOG:
        _LOG.append(LaneLog())
    return _LOG[0]


class LaneLog:
    """The log of UCX in this process, in memory; read it on one thread."""

    def __init__(self) -> None:
        self._handle = os.memfd_create("baton-ucx-log", os.MFD_CLOEXEC)
        self.path = f"/proc/self/fd/{self._handle}"
        self._libc = ctypes.CDLL(None)
        self._at = 0
        self._rest = ""
        self._title = ""
        self._operation: Operation | None = None
        self.lanes: dict[Operation, dict[str, str]] = {"write": {}, "read": {}}
        """By operation: the lane of each configuration of a peer."""

    def read(self) -> list[str]:
        """Take in what was logged meanwhile; returns its warnings and errors."""
        self._libc.fflush(None)  # the library writes through a buffer of C
        data = os.pread(self._handle, 1 << 20, self._at)
        self._at += len(data)
        lines = (self._rest + data.decode(errors="replace")).split("\n")
        self._rest = lines.pop()
        problems = []
        for line in lines:
            match = _CONTENT.match(line)
            if match is not None and match[1].startswith("|"):
                self._take_row([cell.strip() for cell in match[1].strip("|").split("|")])
            elif _PROBLEM.search(line):
                problems.append(line)
        return problems

    def lane_of(self, operation: Operation, before: frozenset[str]) -> str:
        """The lane of a peer that was first used when only `before` had been explained."""
        known = self.lanes[operation]
        new = {lane for title, lane in known.items() if title not in before}
        lanes = new or set(known.values())
        return "+".join(sorted(lanes)) if lanes else UNKNOWN

    def explained(self, operation: Operation) -> frozenset[str]:
        """The configurations of peers whose lane is known."""
        return frozenset(self.lanes[operation])

    def _take_row(self, cells: list[str]) -> None:
        if len(cells) == 1:
            title = _TITLE.search(cells[0])
            if title is not None:
                self._title = "" if title["where"] == "self" else title[0]
                self._operation = None
                return
            for words, operation in _OPERATIONS.items():
                if cells[0].startswith(words):
                    self._operation = operation
        elif len(cells) == 3 and self._title and self._operation and cells[0].endswith("inf"):
            self.lanes[self._operation][self._title] = cells[2].partition("/")[0]
