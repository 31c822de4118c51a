"""A NIXL agent that moves bytes between memory of this process and files (its POSIX backend)."""

import secrets
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baton.runtime.dataplane.arena import Bytes
from baton.runtime.dataplane.nixl import library
from baton.runtime.dataplane.nixl.agent import VERBS, Posted, faults
from baton.runtime.dataplane.nixl.lanes import Operation, process_log

_BACKEND = "POSIX"
_PARAMETERS = {"use_aio": "true"}
"""Linux AIO, of which the kernel performs a request without O_DIRECT before the submission returns:
when a piece has failed, no other piece is under way. io_uring may leave one to a kernel thread, and
its late bytes would meet a block that is somebody else's by then."""
_MAX_REGIONS = 8
_NAP_S = 0.00005


class FileAgent:
    """Called from one thread at a time. Raises EngineFault where NIXL refuses or fails."""

    def __init__(self) -> None:
        self._name = f"baton-files-{secrets.token_hex(8)}"
        self._regions: dict[tuple[int, int], Any] = {}
        """Registered memory by address and size, the longest known first."""
        # This agent opens no socket; the settings are those of the data plane all the same, because
        # the library reads some of them once for the process.
        with library.loaded(process_log().path, host="127.0.0.1") as api, faults():
            config = api.nixl_agent_config(enable_prog_thread=False, backends=[])
            self._agent: Any = api.nixl_agent(self._name, config)
            self._agent.create_backend(_BACKEND, _PARAMETERS)

    def move(self, operation: Operation, handle: int, offset: int, rows: Bytes) -> None:
        """Write `rows` to an open file from `offset` on, or read them from there.

        `rows` is `[row][byte]`, each row contiguous. When this returns or raises nothing moves.
        """
        memory, file = _descriptors(rows, handle, offset)
        with faults():
            self._register(rows)
            opened = self._agent.register_memory([(0, offset + rows.nbytes, handle, "")], "FILE")
            try:
                sides = [
                    self._agent.get_xfer_descs(memory, mem_type="DRAM"),
                    self._agent.get_xfer_descs(file, mem_type="FILE"),
                ]
                request = self._agent.initialize_xfer(VERBS[operation], *sides, self._name, b"")
                posted = Posted(self._agent, request)
                while not posted.is_done:
                    time.sleep(_NAP_S)
            finally:
                self._agent.deregister_memory(opened)

    def close(self) -> None:
        """Let go of all memory and of the agent."""
        with faults():
            for region in self._regions.values():
                self._agent.deregister_memory(region)
        self._regions.clear()
        self._agent = None

    def _register(self, rows: Bytes) -> None:
        """Make the memory in which `rows` lie known, all of it and once."""
        whole: Any = rows
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        key = (whole.__array_interface__["data"][0], whole.nbytes)
        if key in self._regions:
            return
        if len(self._regions) == _MAX_REGIONS:
            self._agent.deregister_memory(self._regions.pop(next(iter(self._regions))))
        self._regions[key] = self._agent.register_memory([(*key, 0, "")], "DRAM")


def _descriptors(
    rows: Bytes, handle: int, offset: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Tables of (address, nbytes, device) for the memory and for the file."""
    address, step = rows.__array_interface__["data"][0], rows.strides[0]
    count, nbytes = rows.shape
    if step == nbytes:  # all in a row: one piece
        count, nbytes = 1, rows.nbytes
    numbers = np.arange(count, dtype=np.uint64)
    memory, file = np.empty((count, 3), np.uint64), np.empty((count, 3), np.uint64)
    memory[:, 0] = address + numbers * np.uint64(step)
    memory[:, 1], memory[:, 2] = nbytes, 0
    file[:, 0] = offset + numbers * np.uint64(nbytes)
    file[:, 1], file[:, 2] = nbytes, handle
    return memory, file
