"""Which workers live, seen from outside: their processes, and the router's list of them."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from baton.bench.chaos.host_process import HostProcess
from baton.bench.chaos.orders import WorkerState

_POLL_S = 0.025


class Lives:
    """Polls `/proc` and the host; `on_death` is called once per death, with its time."""

    def __init__(self, host: HostProcess, on_death: Callable[[WorkerState, float], None]) -> None:
        self._host = host
        self._on_death = on_death
        self.known: dict[str, WorkerState] = {}
        """The last life of each worker that the router took."""
        self._dead: set[tuple[str, int]] = set()
        self.down_since_s: dict[str, float] = {}
        """Roles without a worker that could answer, and since when."""
        self.num_outages = 0
        """How often a role has lost its last worker that could answer."""
        self.roles: set[str] = set()
        self.asked_s = 0.0
        """When the host was asked for what is known now: all earlier is judged by it."""

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_POLL_S)

    async def look(self) -> None:
        """One poll. A life that came and went since the last one ended an outage all the same."""
        asked_s = time.monotonic()
        state = await self._host.state()
        for worker in state.workers:
            known = self.known.get(worker.worker_id)
            if known is None or worker.epoch > known.epoch:
                self.known[worker.worker_id] = worker
                self.roles.add(worker.role)
                self.down_since_s.pop(worker.role, None)
        now_s = time.monotonic()
        for worker in self.known.values():
            life = (worker.worker_id, worker.epoch)
            if life not in self._dead and not is_process(worker.pid):
                self._dead.add(life)
                self._on_death(worker, now_s)
        for role in self.roles:
            if self.up(role):
                self.down_since_s.pop(role, None)
            elif role not in self.down_since_s:
                self.down_since_s[role] = now_s
                self.num_outages += 1
        self.asked_s = asked_s

    def up(self, role: str = "") -> list[WorkerState]:
        """Workers (of a role) that run now: neither dead nor stopped."""
        return [
            worker
            for worker in self.known.values()
            if role in ("", worker.role)
            and (worker.worker_id, worker.epoch) not in self._dead
            and process_state(worker.pid) not in ("", "Z", "X", "T")
        ]


def process_state(pid: int) -> str:
    """The letter of a process's state, or "" when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def is_process(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    return process_state(pid) not in ("", "Z", "X")
