"""The seeded schedule: one heavy fault at a time, light ones between them."""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from baton.bench.chaos.host_process import HostProcess
from baton.bench.chaos.kinds import Kind
from baton.bench.chaos.limits import no_descriptors
from baton.bench.chaos.lives import Lives
from baton.bench.chaos.load import Load
from baton.bench.chaos.orders import WorkerState
from baton.bench.chaos.plan import LEASE_MS
from baton.bench.chaos.recovery import Recoveries
from baton.bench.chaos.tier_files import TierFiles
from baton.bench.chaos.windows import GRACE_S, GatewayWindows
from baton.core.ids import Role

WHOLE_S = 150.0
"""How long dead workers may take to be back, on a machine that does much else beside."""
_HEAVY_PAUSE_S = (0.2, 1.5)
_LIGHT_PAUSE_S = (0.5, 2.0)
_THAW_S = LEASE_MS / 1000 + 0.7
_POLL_S = 0.05
_LOAD_S = 6.0
"""How long a worker may take to its next load from a lower tier."""


class Deck:
    """Kinds in a shuffled order, each once before any comes again, over all parts of a run."""

    def __init__(self, kinds: Sequence[Kind], seed: int) -> None:
        self._kinds = list(kinds)
        self._chance = random.Random(f"deck {seed} {self._kinds}")
        self._left: list[Kind] = []

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def draw(self) -> Kind:
        """The next kind."""
        self._left = self._left or self._chance.sample(self._kinds, len(self._kinds))
        return self._left.pop()


class Injector:
    """Injects until a time; every fault that happened is told to `on_fault`."""

    def __init__(
        self,
        host: HostProcess,
        lives: Lives,
        load: Load,
        recoveries: Recoveries,
        decks: tuple[Deck, Deck],
        seed: int,
        on_fault: Callable[[Kind], None],
        windows: GatewayWindows,
        ends: Path,
        files: TierFiles,
    ) -> None:
        self._host = host
        self._lives = lives
        self._load = load
        self._recoveries = recoveries
        self._heavy, self._light = decks
        self._chance = random.Random(f"injector {seed}")
        self._on_fault = on_fault
        self._size = len(lives.known)
        self.violations: list[str] = []
        self.windows = windows
        self._ends = ends
        self._files = files
        self._acts: dict[Kind, Callable[[], Awaitable[bool | None]]] = {
            Kind.KILL_PREFILL: lambda: self._end_one(signal.SIGKILL, Role.PREFILL),
            Kind.KILL_DECODE: lambda: self._end_one(signal.SIGKILL, Role.DECODE),
            Kind.RESTART: lambda: self._end_one(signal.SIGTERM),
            Kind.FREEZE_KILL: lambda: self._end_one(signal.SIGSTOP),
            Kind.KILL_IN_LOAD: self._kill_in_load,
            Kind.KILL_ROLE: self._kill_role,
            Kind.FREEZE_THAW: self._freeze_thaw,
            Kind.SHM_FULL: self._fill_shm,
            Kind.FDS_WORKER: self._starve_worker,
            Kind.FDS_GATEWAY: self._starve_gateway,
            Kind.REVOKE: self._revoke,
            Kind.CANCEL_STORM: self._load.storm,
            Kind.FILE_TRUNCATED: lambda: asyncio.to_thread(files.truncate),
            Kind.FILE_CORRUPT: lambda: asyncio.to_thread(files.corrupt),
            Kind.FILE_DELETED: lambda: asyncio.to_thread(files.delete),
        }

    async def run(self, until_s: float) -> None:
        """Inject until that time; faults that have begun are brought to their end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._heavy, _HEAVY_PAUSE_S, until_s))
            group.create_task(self._repeat(self._light, _LIGHT_PAUSE_S, until_s))
        await self._until(lambda: len(self._lives.up()) == self._size, "all workers are back")

    async def _repeat(self, deck: Deck, pause_s: tuple[float, float], until_s: float) -> None:
        while deck:
            await asyncio.sleep(self._chance.uniform(*pause_s))
            if time.monotonic() >= until_s:
                return
            kind = deck.draw()
            if kind is Kind.FDS_GATEWAY and not self.windows.has_room:
                continue
            if await self._acts[kind]() is not False:
                self._on_fault(kind)

    async def _until(self, holds: Callable[[], bool], what: str) -> bool:
        deadline_s = time.monotonic() + WHOLE_S
        while not holds():
            if time.monotonic() > deadline_s:
                self.violations.append(f"not so after {WHOLE_S:.0f} s: {what}")
                return False
            await asyncio.sleep(_POLL_S)
        return True

    # -- acts ----------------------------------------------------------------------------------

    def _whole(self, role: str = "") -> list[str]:
        """Roles (or this one) all of whose workers are up."""
        per_role = self._size // len(self._lives.roles)
        roles = [role] if role else sorted(self._lives.roles)
        return [name for name in roles if len(self._lives.up(name)) == per_role]

    async def _choose(self, role: str = "") -> WorkerState:
        """A worker whose fellow of the same role is up: its loss alone is no outage."""
        await self._until(lambda: bool(self._whole(role)), "a role has all its workers")
        up = self._lives.up(self._chance.choice(self._whole(role) or sorted(self._lives.roles)))
        return self._chance.choice(sorted(up or self._lives.known.values(), key=_name))

    async def _end_one(self, number: signal.Signals, role: str = "") -> None:
        victim = await self._choose(role)
        send(victim, number)
        await self._until_gone(victim)

    async def _kill_role(self) -> None:
        role = (await self._choose()).role
        victims = self._lives.up(role)
        for victim in victims:
            send(victim, signal.SIGKILL)
        for victim in victims:
            await self._until_gone(victim)

    async def _freeze_thaw(self) -> None:
        victim = await self._choose()
        await self._host.order("spare", victim.worker_id)
        send(victim, signal.SIGSTOP)
        try:
            await asyncio.sleep(_THAW_S)
        finally:  # an interrupted run must not leave somebody who cannot hear that it is over
            send(victim, signal.SIGCONT)
        await asyncio.sleep(1.0)  # a heartbeat first: the watcher must not meet its old silence
        await self._host.order("watch", victim.worker_id)

    async def _kill_in_load(self) -> bool:
        """Order it, and take the order back from a worker that loads nothing; then False."""
        victim = await self._choose()
        order = self._ends / victim.worker_id
        order.touch()
        deadline_s = time.monotonic() + _LOAD_S
        while order.exists() and time.monotonic() < deadline_s:
            await asyncio.sleep(_POLL_S)
        if order.exists():
            with contextlib.suppress(FileNotFoundError):
                order.unlink()
                return False
        await self._until_gone(victim)
        return True

    async def _fill_shm(self) -> None:
        victim = await self._choose()
        await self._host.order("fail arena", victim.worker_id)
        send(victim, signal.SIGKILL)
        await self._until_gone(victim)
        await self._until_epoch(victim, victim.epoch + 2)

    async def _starve_worker(self) -> None:
        victim = await self._choose()
        others = sorted((one for one in self._lives.up() if one != victim), key=_name)
        starved = self._chance.choice(others)
        send(victim, signal.SIGKILL)
        await self._until_gone(victim)
        await asyncio.sleep(0.5)  # it closes what it had of the dead one
        with no_descriptors(starved.pid):
            await self._until_epoch(victim, victim.epoch + 1)
            await asyncio.sleep(1.0)

    async def _starve_gateway(self) -> None:
        windows = self.windows
        killing = windows.may_wait_for_a_worker and self._chance.random() < 0.5
        victim = await self._choose() if killing else None
        self._recoveries.block()
        started_s = time.monotonic()
        try:
            with no_descriptors(self._host.pid):
                if victim is not None:
                    send(victim, signal.SIGKILL)
                    # It comes back while the gateway can open nothing but what it held in reserve.
                    await self._until_gone(victim)
                    await self._until_epoch(victim, victim.epoch + 1)
                await asyncio.sleep(windows.length_s)
            await asyncio.sleep(GRACE_S)
        finally:
            self._recoveries.is_blocked = False
            windows.close(started_s, time.monotonic())

    async def _revoke(self) -> None:
        await self._host.order("revoke")

    async def _until_gone(self, worker: WorkerState) -> None:
        while any(one == worker for one in self._lives.up()) or os.path.exists(
            f"/proc/{worker.pid}"
        ):
            await asyncio.sleep(_POLL_S)

    async def _until_epoch(self, worker: WorkerState, epoch: int) -> None:
        known = self._lives.known
        what = f"{worker.worker_id} has reached epoch {epoch}"
        await self._until(lambda: known[worker.worker_id].epoch >= epoch, what)


def _name(worker: WorkerState) -> str:
    return worker.worker_id


def send(worker: WorkerState, number: signal.Signals) -> None:
    """Send a signal to a worker's process, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker.pid, number)
