"""NIXL without us: one agent writes, one looks; no queue, no sums, no credit."""

import os
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from baton.bench.network.namespaces import Namespace
from baton.runtime.dataplane.nixl import library

_BACKEND = "UCX"
_MEMORY = "DRAM"


class RawSide:
    """One agent over one registered region, with the calls of NIXL's own interface."""

    def __init__(self, name: str, nbytes: int, host: str) -> None:
        self.name = name
        with library.loaded(os.devnull, host=host) as api:
            config = api.nixl_agent_config(enable_prog_thread=False, backends=[_BACKEND])
            self._agent: Any = api.nixl_agent(name, config)
        self._memory = np.ones(nbytes, np.uint8)
        self.address = self._memory.ctypes.data
        self._agent.register_memory([(self.address, nbytes, 0, "")], _MEMORY)
        self.metadata: bytes = self._agent.get_agent_metadata()

    def add(self, metadata: bytes) -> str:
        """Learn of the other side; returns its name."""
        name: bytes = self._agent.add_remote_agent(metadata)
        return name.decode()

    def write(self, peer: str, remote: int, nbytes: int) -> None:
        """Write the first `nbytes` of the region to `remote`, and return when they are there."""
        local = self._agent.get_xfer_descs([(self.address, nbytes, 0)], mem_type=_MEMORY)
        there = self._agent.get_xfer_descs([(remote, nbytes, 0)], mem_type=_MEMORY)
        handle = self._agent.initialize_xfer("WRITE", local, there, peer, b"")
        state = self._agent.transfer(handle)
        while state == "PROC":
            state = self._agent.check_xfer_state(handle)
        handle.release()

    def look(self) -> None:
        """Let bytes that come over a socket arrive."""
        self._agent.get_new_notifs()


def raw_destination(control: Connection, core: int, nbytes: int, place: Namespace) -> None:
    """The receiving process: it looks without a pause from a `spin` to the next word."""
    place.enter()
    os.sched_setaffinity(0, {core})
    side = RawSide("raw-destination", nbytes, place.address)
    control.send((side.address, side.metadata))
    side.add(control.recv())
    control.send("ready")
    while control.recv() == "spin":
        control.send("spinning")
        while not control.poll():
            for _ in range(100):
                side.look()
        control.send(control.recv())
