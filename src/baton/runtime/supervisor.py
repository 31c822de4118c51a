"""Starts workers, watches them, and restarts the dead under a new epoch, wherever they run."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from baton.config import BatonConfig
from baton.core.ids import Role
from baton.errors import ConfigError
from baton.runtime.channel import control_endpoint
from baton.runtime.faults import FaultSpec
from baton.runtime.issuer_key import IssuerKey
from baton.runtime.launch import Launcher, Life, LifeLost, Site
from baton.runtime.notice import notice
from baton.runtime.router_door import RouterDoor
from baton.runtime.spec import WorkerReport, WorkerSpec

_STOP_TIMEOUT_S = 10.0
_SWEEP_FOR_S = 1.0
"""How long after a kill its stage processes may take to end: the kernel kills them in turn."""
_SWEEP_PAUSE_S = 0.1
_NO_PROCESS = -1
"""Exit code of a process that could not be started."""
_UNFIT = 2
"""... and of one that could not be started as it is asked for: it ends as a worker that refuses."""
_LOST = -1000
"""... and of one whose end nobody saw: its keeper or its node has gone."""
_STEADY_S = 10.0
"""A life that was up for so long does not make the next one wait."""
_BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0)
_NUM_VAIN_STARTS = 3
"""Ends in a row of a worker that was never ready, in any life: the next one would end too."""


class ManagedWorker:
    """One worker slot: its current process, epoch and last report."""

    def __init__(self, worker_id: str, ordinal: int, role: Role) -> None:
        self.worker_id = worker_id
        self.ordinal = ordinal
        self.role = role
        self.cores: tuple[int, ...] = ()
        """What its current life is pinned to, on its host."""
        self.host = ""
        """Where its current life runs; "" before the first."""
        self.epoch = 0
        self.life: Life | None = None
        self.report = WorkerReport(stage="starting")
        self.restarts = 0
        self.quick_deaths = 0
        """Lives in a row that ended soon after their start, or never came up."""
        self.deterministic_report = ""
        self.served = False
        self.vain_starts = 0
        """Processes that ended before any life of this worker was ready."""
        self.said = ""
        """What the current life reported last: an error, or the stage of its start."""
        self.leaving = False
        """It is not started again."""
        self.killed_for = ""
        """Why Baton killed the current life; "" where it did not."""
        self.lost: Life | None = None
        """The current life, where its end was not seen."""
        self.ready_s = 0.0
        """When the current life was ready, on the monotonic clock; 0 before."""


class Supervisor:
    """Owns the worker processes. `on_lost` is called once per life that is over.

    It takes worker id, epoch, and whether the process is known to have ended: one that was lost
    with its node or its keeper may still run there. Of such a life it is called once more, with
    True, when there is proof.
    """

    def __init__(
        self,
        config: BatonConfig,
        launcher: Launcher,
        runtime_dir: Path,
        on_lost: Callable[[str, int, bool], None],
        trace_dir: Path | None = None,
        *,
        door: RouterDoor,
        issuer: IssuerKey,
        faults_of: Callable[[str, int], FaultSpec | None] = lambda worker_id, epoch: None,
    ) -> None:
        self._config = config
        self._launcher = launcher
        self._runtime_dir = runtime_dir
        self._on_lost = on_lost
        self._trace_dir = trace_dir
        self._door = door
        self._issuer = issuer
        self._faults_of = faults_of
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._proofs: set[asyncio.Task[None]] = set()
        self.failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.workers = [
            ManagedWorker(worker_id, ordinal, role)
            for ordinal, (worker_id, role) in enumerate(
                zip(config.cluster.worker_ids, config.cluster.roles, strict=True)
            )
        ]

    def start(self) -> None:
        """Start every worker; they come up in parallel."""
        self._launcher.sweep()
        for worker in self.workers:
            task = asyncio.create_task(self._keep(worker), name=worker.worker_id)
            task.add_done_callback(self._on_keeping_ended)
            self._tasks.append(task)

    def _on_keeping_ended(self, task: "asyncio.Task[None]") -> None:
        """A slot that nobody keeps is never filled again: that must not pass in silence."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            text = f"{task.get_name()} is not restarted any more"
            task.get_loop().call_exception_handler({"message": text, "exception": error})
            self._fail(f"{text}: {type(error).__name__}: {error}")

    async def stop(self) -> None:
        """Stop every process: end of input first, then SIGKILL after a bound."""
        self._stopping = True
        for proof in self._proofs:
            proof.cancel()
        for worker in self.workers:
            if worker.life is not None:
                worker.life.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_STOP_TIMEOUT_S)
            if late:
                await self._end_late(late)
        self._launcher.sweep()

    async def _end_late(self, late: "set[asyncio.Task[None]]") -> None:
        """Kill who did not stop in time, and see to it that nothing of them stays."""
        for worker in self.workers:
            if worker.life is not None:
                text = f"did not stop within {_STOP_TIMEOUT_S:g} s and is killed"
                notice(worker.worker_id, text)
                self._kill(worker)
        _, left = await asyncio.wait(late, timeout=_STOP_TIMEOUT_S)
        for task in left:
            notice(task.get_name(), "has not ended after it was killed; it is left to the kernel")
            task.cancel()
        until_s = time.monotonic() + _SWEEP_FOR_S
        while time.monotonic() < until_s:  # nobody comes after the last stop
            self._launcher.sweep()
            await asyncio.sleep(_SWEEP_PAUSE_S)

    def role_of(self, worker_id: str) -> Role | None:
        """Of a worker that is kept alive, be it up or not; None for another one."""
        kept = (one.role for one in self.workers if one.worker_id == worker_id and not one.leaving)
        return next(kept, None)

    async def remove(self, worker_id: str) -> None:
        """End a worker for good, in whichever life it is: its slot goes.

        Its end is told as any other. What has no process yet, because it waits for a node or
        until it may restart, is not waited for.
        """
        for worker in [one for one in self.workers if one.worker_id == worker_id]:
            worker.leaving = True
            task = next((one for one in self._tasks if one.get_name() == worker_id), None)
            if task is None:
                continue
            if worker.life is None:
                task.cancel()
            else:
                worker.life.stop()
            await asyncio.wait([task], timeout=_STOP_TIMEOUT_S)
            if not task.done():
                self._kill(worker)
                await asyncio.wait([task], timeout=_STOP_TIMEOUT_S)
            self._forget(worker)

    def _forget(self, worker: ManagedWorker) -> None:
        if worker in self.workers:
            self.workers.remove(worker)

    def kill(self, worker_id: str, reason: str = "") -> None:
        """End a worker that no longer answers; its death makes its state safe to reclaim.

        `reason` says what it did ("was silent for ..."), for the operator.
        """
        for worker in self.workers:
            if worker.worker_id == worker_id and worker.life is not None:
                worker.killed_for = reason
                self._kill(worker)

    def _kill(self, worker: ManagedWorker) -> None:
        if worker.life is not None:
            worker.life.kill()

    async def _keep(self, worker: ManagedWorker) -> None:
        while not self._stopping:
            worker.epoch += 1
            worker.ready_s = 0.0
            worker.said = worker.killed_for = ""
            code = await self._run(worker)
            if self._stopping:
                return
            with contextlib.suppress(OSError):  # out of descriptors: the next death sweeps too
                self._launcher.sweep()
            self._on_lost(worker.worker_id, worker.epoch, code != _LOST)
            self._seek_proof(worker)
            if worker.leaving:
                self._forget(worker)
                return
            error = worker.report.error
            # Before it ever served, an error is a configuration that cannot work; later it may
            # pass, as a full /dev/shm does.
            if code in (2, 3) and error and not worker.served:
                self._fail(f"{worker.worker_id}: {error}")
                return
            # Where no process could be started there was none that could say anything.
            worker.vain_starts += not worker.served and code != _NO_PROCESS
            if worker.vain_starts == _NUM_VAIN_STARTS:
                self._fail(_vain(worker, code))
                return
            notice(
                worker.worker_id,
                f"epoch {worker.epoch} {_ended(worker, code)}; "
                f"it restarts as epoch {worker.epoch + 1}",
            )
            worker.restarts += 1
            if worker.restarts > self._config.cluster.max_restarts:
                end = _ended(worker, code)
                self._fail(f"{worker.worker_id} died {worker.restarts} times; the last {end}")
                return
            worker.report = WorkerReport(stage=f"restarts: {_ended(worker, code)}")
            steady = worker.ready_s and time.monotonic() - worker.ready_s >= _STEADY_S
            worker.quick_deaths = 1 if steady else worker.quick_deaths + 1
            await asyncio.sleep(_BACKOFF_S[min(worker.quick_deaths, len(_BACKOFF_S)) - 1])

    def _seek_proof(self, worker: ManagedWorker) -> None:
        """What a life may still write into is kept until its end is proven."""
        if worker.lost is None:
            return
        proving = self._prove(worker.worker_id, worker.epoch, worker.lost)
        worker.lost = None
        task = asyncio.create_task(proving, name=f"end of {worker.worker_id}")
        self._proofs.add(task)
        task.add_done_callback(self._proofs.discard)

    async def _prove(self, worker_id: str, epoch: int, life: Life) -> None:
        if await life.prove_end():
            notice(worker_id, f"epoch {epoch} is proven to have ended")
            self._on_lost(worker_id, epoch, True)
        else:
            text = "what it may write into stays in quarantine until its holder restarts"
            notice(worker_id, f"the end of epoch {epoch} could not be proven; {text}")

    def _fail(self, reason: str) -> None:
        if not self.failure.done():
            self.failure.set_result(reason)

    async def _run(self, worker: ManagedWorker) -> int:
        """One life, from its place to its end; returns its exit code."""
        site = None
        try:
            site = await self._launcher.take_site(worker.ordinal)
            life = await self._begin(worker, site)
        except ConfigError as error:
            worker.report = WorkerReport(error=str(error))
            return _UNFIT
        except (OSError, LifeLost) as error:
            # Without descriptors, processes or nodes there is no worker now; there may be later.
            notice(worker.worker_id, f"cannot start a process: {error}")
            is_unknown = site is not None and isinstance(error, LifeLost)
            return _LOST if is_unknown else _NO_PROCESS  # it may have started all the same
        if life is None:
            return _NO_PROCESS
        worker.life = life
        try:
            async for line in life.lines():
                self._take_report(worker, line)
            return await life.wait()
        except LifeLost as error:
            notice(worker.worker_id, f"epoch {worker.epoch} is lost: {error}")
            worker.lost = life
            return _LOST
        finally:
            worker.life = None

    async def _begin(self, worker: ManagedWorker, site: Site) -> Life | None:
        """Start at that place; None where it is not wanted any more."""
        if self._stopping or worker.leaving:
            site.leave()
            return None
        worker.cores, worker.host = site.cores, site.host
        if site.public_key:
            self._door.admit(worker.worker_id, worker.epoch, site.public_key)
        life = await site.start(self._spec(worker, site))
        if self._stopping or worker.leaving:
            life.kill()
        return life

    def _take_report(self, worker: ManagedWorker, line: bytes) -> None:
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            worker.report = msgspec.json.decode(line, type=WorkerReport)
            worker.said = worker.report.error or worker.report.stage or worker.said
            if worker.report.stage == "ready" and worker.report.report:
                worker.served = True
                worker.ready_s = time.monotonic()
            if worker.report.report:
                worker.deterministic_report = worker.report.report

    def _spec(self, worker: ManagedWorker, site: Site) -> WorkerSpec:
        trace = self._trace_dir / f"{worker.worker_id}.jsonl" if self._trace_dir else ""
        cluster = replace(self._config.cluster, control_host=site.host)
        name = f"{worker.worker_id}.{worker.epoch}"
        return WorkerSpec(
            worker_id=worker.worker_id,
            ordinal=worker.ordinal,
            epoch=worker.epoch,
            role=worker.role,
            cores=site.cores,
            model_path=str(site.model_path),
            endpoint=control_endpoint(cluster, self._runtime_dir, name),
            router_endpoint=self._door.endpoint,
            router_key=self._door.key,
            issuer=self._issuer,
            trace_path=str(trace),
            faults=self._faults_of(worker.worker_id, worker.epoch),
            config=replace(self._config, cluster=cluster),
        )


def _ended(worker: ManagedWorker, code: int) -> str:
    """How its life ended, in words: what Baton killed does not read like an end of its own."""
    if worker.killed_for:
        return f"{worker.killed_for} and was killed by Baton"
    if code == _LOST:
        return "was lost with its node or its keeper"
    return "could not be started" if code == _NO_PROCESS else f"ended with exit {code}"


def _vain(worker: ManagedWorker, code: int) -> str:
    """Why a worker is given up that never came up."""
    end = f"exit {code}" if code >= 0 else f"signal {-code} ({signal.strsignal(-code)})"
    if code == _LOST:
        end = "the loss of its node or its keeper"
    said = f"it said last: {worker.said}" if worker.said else "it said nothing"
    is_killed = -code == signal.SIGKILL and not worker.killed_for
    if worker.killed_for:
        end = f"its kill by Baton, as it {worker.killed_for}"
    hint = "; the kernel may have run out of memory" if is_killed else ""
    return (
        f"{worker.worker_id} ended {worker.vain_starts} times without ever having been ready, the "
        f"last time with {end}; {said}{hint}. What it wrote is above on standard error"
    )
