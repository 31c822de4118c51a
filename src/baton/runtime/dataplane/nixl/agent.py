"""One NIXL agent, confined to the thread that opens it.

Its own progress thread would burn a core while idle, and its locks are held through a whole copy
(measured), so it has neither: whoever owns it calls it often. Its listener is off: metadata gives
rights to memory and travels on the control channel only.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baton.runtime.dataplane.arena import Bytes
from baton.runtime.dataplane.nixl import library
from baton.runtime.dataplane.nixl.lanes import Operation, process_log
from baton.runtime.dataplane.runs import Run

_BACKEND = "UCX"
_MEMORY = "DRAM"
VERBS = {"write": "WRITE", "read": "READ"}
"""What NIXL calls the two."""
_FEW_RUNS = 16
"""Up to so many, tuples are quicker than an array (8 against 22 us for one run)."""


class EngineFault(Exception):
    """What NIXL refused or reported, in its words."""

    def __init__(self, error: Exception) -> None:
        name = type(error).__name__
        super().__init__(f"{name}: {error}")
        self.is_peer_gone = "Disconnect" in name


@contextlib.contextmanager
def faults() -> Iterator[None]:
    """Whatever NIXL raises within becomes an EngineFault."""
    try:
        yield
    except EngineFault:
        raise
    except Exception as error:
        raise EngineFault(error) from error


class Agent:
    """The calls of NIXL that the plane needs."""

    def __init__(self, name: str, *, host: str) -> None:
        self.log = process_log()
        with library.loaded(self.log.path, host=host) as api, faults():
            config = api.nixl_agent_config(enable_prog_thread=False, backends=[_BACKEND])
            self._agent: Any = api.nixl_agent(name, config)

    def register(self, regions: Sequence[Bytes]) -> bytes:
        """Let peers reach `regions`; returns the metadata that gives them the right to."""
        with faults():
            parts = [(region.ctypes.data, region.size, 0, "") for region in regions]
            self._agent.register_memory(parts, _MEMORY)
            metadata: bytes = self._agent.get_agent_metadata()
            return metadata

    def add(self, metadata: bytes) -> str:
        """Learn of a peer by its metadata; returns the name of its agent."""
        with faults():
            name: bytes = self._agent.add_remote_agent(metadata)
            return name.decode()

    def remove(self, peer: str) -> None:
        """Forget a peer. Never while something to or from it is under way: it would go on."""
        with faults():
            self._agent.remove_remote_agent(peer)

    def post(
        self,
        operation: Operation,
        local_base: int,
        remote_base: int,
        runs: Sequence[Run],
        peer: str,
    ) -> "Posted":
        """Start to move `runs` of (local, remote, nbytes), counted from the bases."""
        if len(runs) <= _FEW_RUNS:
            sides: list[Any] = [
                [(local_base + local, nbytes, 0) for local, _, nbytes in runs],
                [(remote_base + remote, nbytes, 0) for _, remote, nbytes in runs],
            ]
        else:
            table = np.asarray(runs, dtype=np.uint64)
            sides = [_table(table, 0, local_base), _table(table, 1, remote_base)]
        with faults():
            descriptors = [self._agent.get_xfer_descs(side, mem_type=_MEMORY) for side in sides]
            handle = self._agent.initialize_xfer(VERBS[operation], *descriptors, peer, b"")
            return Posted(self._agent, handle)

    def notify(self, peer: str, note: bytes) -> None:
        """Send a note that arrives after everything that was moved to the peer before it."""
        with faults():
            self._agent.send_notif(peer, note)

    def notes(self) -> dict[str, list[bytes]]:
        """Make progress, also for peers that move bytes here, and return the notes that came."""
        with faults():
            notes: dict[str, list[bytes]] = self._agent.get_new_notifs()
            return notes


def _table(runs: NDArray[np.uint64], column: int, base: int) -> NDArray[np.uint64]:
    side = np.zeros((len(runs), 3), dtype=np.uint64)
    side[:, 0] = runs[:, column] + np.uint64(base)
    side[:, 1] = runs[:, 2]
    return side


class Posted:
    """A transfer under way. NIXL cannot cancel one: it ends by itself or with the peer."""

    def __init__(self, agent: Any, handle: Any) -> None:
        self._agent = agent
        self._handle = handle
        with faults():
            self._state = agent.transfer(handle)

    @property
    def is_done(self) -> bool:
        """Whether it has ended; asked again and again. Raises EngineFault when it has failed."""
        if self._handle is None:
            return True
        if self._state == "PROC":
            with faults():
                self._state = self._agent.check_xfer_state(self._handle)
            if self._state == "PROC":
                return False
        with faults():
            self._handle.release()
        self._handle = None
        return True
