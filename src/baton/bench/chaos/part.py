"""Runs one part: deploy, calm baseline, faults under load, heal, judge."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from baton.bench.chaos.answers import Answer
from baton.bench.chaos.asks import Ask
from baton.bench.chaos.calls import VIOLATIONS, Called, End, call
from baton.bench.chaos.host_process import HostProcess, running_host
from baton.bench.chaos.injector import WHOLE_S, Deck, Injector
from baton.bench.chaos.kinds import Kind
from baton.bench.chaos.lives import Lives
from baton.bench.chaos.load import Load
from baton.bench.chaos.orders import HostState, WorkerState
from baton.bench.chaos.plan import REQUEST_BOUND_S, HostPlan, Part, fault_spec, part_config
from baton.bench.chaos.probes import Probe, is_contradiction, is_lie, slow_health
from baton.bench.chaos.progress import Progress
from baton.bench.chaos.recovery import LIMIT_S, Recoveries
from baton.bench.chaos.result import PartResult
from baton.bench.chaos.tier_files import TierFiles
from baton.bench.chaos.windows import GatewayWindows
from baton.config import BatonConfig

_IDLE_S = 15.0
_SETTLE_S = 0.5
_POLL_S = 0.1
_JUDGE_S = 0.05
_MAX_TEXTS = 40
_NO_MEMORY = 2
_INJECTED_EXITS = (-signal.SIGKILL, -signal.SIGTERM, 0, -1)
"""Of workers: killed, asked to end before or after they were up, and not startable at all."""
_COUNTED = {
    Kind.DROP: "channel_injected_drops",
    Kind.DUPLICATE: "channel_injected_duplicates",
    Kind.DELAY: "channel_injected_delays",
    Kind.FLIP: "plane_injected_flips",
}


class PartRun:
    """One part while it runs."""

    def __init__(
        self,
        part: Part,
        asks: tuple[Ask, ...],
        references: asyncio.Task[dict[str, Answer]],
        kinds: frozenset[Kind],
        decks: tuple[Deck, Deck],
        pairs: int,
        seed: int,
        progress: Progress,
    ) -> None:
        self._asks = asks
        self._collecting = references
        self._references: Mapping[str, Answer] = {}
        self._kinds = kinds
        self._decks = decks
        self._pairs = pairs
        self._seed = seed
        self._progress = progress
        self._faults: Counter[Kind] = Counter()
        self._calls: list[Called] = []
        self._lies: list[str] = []
        self._ready: Probe
        self._ends: Path
        self._files: TierFiles
        self._part = part
        self.result = PartResult(name=part.name)

    async def run(self, base: BatonConfig, folder: Path, chaos_s: float) -> PartResult:
        """Run it all. Raises BatonError when the host itself ends."""
        gate, traces, tiers = folder / "gate", folder / "traces", folder / "tiers"
        self._ends, self._files = folder / "ends", TierFiles(tiers, self._seed)
        if Kind.DISK_FULL in self._kinds:
            _fill_disk(traces, ("router", "prefill-0", f"decode-{self._pairs}"))
        self._ends.mkdir()
        plan = HostPlan(
            config=part_config(base, self._part, self._pairs, tiers),
            faults=fault_spec(self._kinds, self._seed, gate, self._ends),
            trace_dir=str(traces),
        )
        async with running_host(plan, folder / "host.log") as host:
            self._stage("every prompt once, without faults")
            before = await self._calm(host)
            self._stage(f"injecting faults for {chaos_s:.0f} s")
            gate.touch()
            started_s = time.monotonic()
            try:
                await self._storm(host, gate, started_s, chaos_s)
            finally:
                self.result.duration_s = time.monotonic() - started_s
            self._stage("every prompt once more, and what is held")
            await self._judge_calm(host, before)
            self._judge_processes(host)
        return self.result

    def _stage(self, text: str) -> None:
        self._progress.stage(f"{self._part.name}: {text}")

    def _judge_processes(self, host: HostProcess) -> None:
        """Workers end by what was injected, and no process meets what it did not expect."""
        violations = self.result.violations
        violations += [f"unhandled: {line}" for line in host.tracebacks()]
        allowed = Counter({_NO_MEMORY: self._faults[Kind.SHM_FULL]})
        for name, code in host.exits():
            if code not in _INJECTED_EXITS and allowed[code] < 1:
                violations.append(f"{name} ended by itself with exit {code}")
            allowed[code] -= 1

    # -- calm ----------------------------------------------------------------------------------

    async def _calm(self, host: HostProcess) -> HostState:
        """Warm every path up; what the idle deployment then has open is what it may have later."""
        self._references = await asyncio.shield(self._collecting)
        await self._ask_all(host)
        return await self._until_idle(host)

    async def _ask_all(self, host: HostProcess) -> None:
        for ask in self._asks:
            called = await call(
                host.address, ask, self._references[ask.name], bound_s=REQUEST_BOUND_S
            )
            if called.end is not End.EQUAL:
                self.result.violations.append(
                    f"without faults {ask.name} was {called.end}: {called.code} {called.detail}"
                )

    async def _until_idle(self, host: HostProcess) -> HostState:
        deadline_s = time.monotonic() + _IDLE_S
        await asyncio.sleep(_SETTLE_S)
        while True:
            state = await host.state()
            if not state.leftovers or time.monotonic() > deadline_s:
                return state
            await asyncio.sleep(_POLL_S)

    # -- faults --------------------------------------------------------------------------------

    async def _storm(self, host: HostProcess, gate: Path, started_s: float, chaos_s: float) -> None:
        until_s = started_s + chaos_s
        lives = Lives(host, lambda worker, died_s: self._on_death(worker, died_s))
        await lives.look()
        self._recoveries = Recoveries(host.address, lives)
        health, self._ready = Probe(host.address, "/health"), Probe(host.address, "/ready")
        load = Load(
            host.address,
            self._asks,
            self._references,
            self._kinds,
            self._seed,
            self._on_call,
            self._on_fault,
        )
        injector = Injector(
            host,
            lives,
            load,
            self._recoveries,
            self._decks,
            self._seed,
            self._on_fault,
            GatewayWindows(chaos_s),
            self._ends,
            self._files,
        )
        watching = [
            asyncio.create_task(task)
            for task in (lives.run(), health.run(), self._ready.run(), self._catch_lies(lives))
        ]
        loading = asyncio.create_task(load.run())
        healing = asyncio.get_running_loop().call_later(
            chaos_s, self._stage, "healing: the last faults and requests end, every worker is back"
        )
        try:
            await _beside(injector.run(until_s), [loading, *watching])
            await asyncio.sleep(max(0.0, until_s - time.monotonic()))
            load.stop()
            await loading
            await self._recoveries.finish()
            gate.unlink()
            await self._until_ready()
        finally:
            healing.cancel()
            for task in (loading, *watching):
                task.cancel()
            await asyncio.gather(loading, *watching, return_exceptions=True)
            self._fold(health, injector)

    def _on_death(self, worker: WorkerState, died_s: float) -> None:
        self._recoveries.died(worker.worker_id, died_s)

    def _on_call(self, called: Called) -> None:
        self._calls.append(called)

    def _on_fault(self, kind: Kind) -> None:
        self._faults[kind] += 1
        self._progress.fault(f"{self._part.name}: {kind}")

    async def _catch_lies(self, lives: Lives) -> None:
        seen = 0
        while True:
            # A busy host may tell late who lives again, so samples wait for what was asked later.
            samples = self._ready.samples
            while seen < len(samples) and samples[seen].answered_s <= lives.asked_s:
                sample, seen = samples[seen], seen + 1
                for role, since_s in lives.down_since_s.items():
                    if is_lie(sample, since_s):
                        down_s = sample.asked_s - since_s
                        self._lies.append(f"/ready was 200 with no {role} for {down_s:.2f} s")
            await asyncio.sleep(_JUDGE_S)

    async def _until_ready(self) -> None:
        healed_s = time.monotonic()
        while not self._ready.was(200, time.monotonic() - 1.0, time.monotonic()):
            if time.monotonic() - healed_s > WHOLE_S:
                self._lies.append(f"/ready is not 200 {WHOLE_S:.0f} s after the last fault")
                return
            await asyncio.sleep(_POLL_S)

    def _fold(self, health: Probe, injector: Injector) -> None:
        result = self.result
        result.faults = dict(self._faults)
        result.ends = dict(Counter(called.end.value for called in self._calls))
        result.codes = dict(Counter(called.code for called in self._calls if called.code))
        result.recoveries = self._recoveries.done
        result.num_health, result.num_ready = len(health.samples), len(self._ready.samples)
        result.slowest_health_s = max(
            (s.answered_s - s.asked_s for s in health.samples), default=0.0
        )
        result.slowest_request_s = max((c.ended_s - c.started_s for c in self._calls), default=0.0)
        texts = [
            f"{called.ask} was {called.end}: {called.code} {called.detail}"
            for called in self._calls
            if called.end in VIOLATIONS
        ]
        texts += slow_health(health)
        texts += self._lies
        texts += [
            f"{called.ask} was refused as not ready while /ready said 200"
            for called in self._calls
            if is_contradiction(called, self._ready)
        ]
        texts += [
            f"{called.ask} was not reached: {called.detail}"
            for called in self._calls
            if called.end is End.UNREACHED and not _overlaps(called, injector.windows.taken)
        ]
        texts += [
            f"{r.worker_id} died: {r.duration_s:.2f} s until an answer, limit {LIMIT_S:.0f} s"
            for r in result.recoveries
            if r.duration_s > LIMIT_S and not r.is_outage
        ]
        result.violations += texts[:_MAX_TEXTS] + injector.violations

    # -- after ---------------------------------------------------------------------------------

    async def _judge_calm(self, host: HostProcess, before: HostState) -> None:
        """Healed: the same answers, nothing held, the same files and segments."""
        result = self.result
        await self._ask_all(host)
        after = await self._until_idle(host)
        result.violations += [f"held after healing: {text}" for text in after.leftovers]
        deadline_s = time.monotonic() + _IDLE_S
        while time.monotonic() < deadline_s and (
            after.footprint != before.footprint or self._files.leaks(after.disk_blocks)
        ):
            await asyncio.sleep(_POLL_S)
            after = await host.state()
        result.violations += self._files.leaks(after.disk_blocks)
        result.violations += [
            f"{name}: {after.footprint.get(name)}, before the faults {count}"
            for name, count in before.footprint.items()
            if after.footprint.get(name) != count
        ]
        for kind, name in _COUNTED.items():
            if count := after.counters.get(name, 0):
                result.faults[kind] = count
        if after.dropped_traces:
            result.faults[Kind.DISK_FULL] = len(after.dropped_traces)
        result.counters = after.counters
        if not result.num_loads:
            result.violations.append("no block was loaded from a host or disk tier")


def _overlaps(called: Called, windows: Sequence[tuple[float, float]]) -> bool:
    return any(called.started_s < end and start < called.ended_s for start, end in windows)


async def _beside(main: Coroutine[Any, Any, None], others: Sequence[asyncio.Task[None]]) -> None:
    """Run `main` to its end; a task beside it that ends too early ends both, with its error."""
    running = asyncio.create_task(main)
    try:
        await asyncio.wait([running, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in (running, *others):
            if task.done():
                task.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _fill_disk(traces: Path, names: Sequence[str]) -> None:
    """The traces of these processes go where every write fails."""
    traces.mkdir()
    for name in names:
        (traces / f"{name}.jsonl").symlink_to("/dev/full")
