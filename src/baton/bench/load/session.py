"""The runs of one command: a single one, or the probes of a rate search."""

import asyncio
from collections.abc import Callable

import msgspec

from baton.bench.load.client import OnProgress, run_load
from baton.bench.load.making import reseeded, schedule
from baton.bench.load.measured import Measured, measure
from baton.bench.load.settings import BenchSettings, SearchSettings
from baton.bench.load.target import Abilities
from baton.goodput.record import RequestRecord
from baton.goodput.search import Goodput, Probe, RateSearch
from baton.workload.request import Workload

Watch = Callable[[str, Workload], OnProgress]
"""Told of each run before it begins; gives what is told of its progress."""


class ProbeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One rate of a search."""

    rate: float
    workload: Workload
    measured: Measured


class Session:
    """Runs loads one after the other against one server; `stop` ends the one that is going on."""

    def __init__(
        self,
        settings: BenchSettings,
        abilities: Abilities,
        requests: Workload,
        watch: Watch,
        stop: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._abilities = abilities
        self._requests = requests
        self._watch = watch
        self._stop = stop
        self._num_runs = 0

    async def run_once(self) -> tuple[Workload, list[RequestRecord]]:
        """One run at the asked rate."""
        return await self._run(self._settings.arrivals.rate, "")

    async def search(self, search: SearchSettings) -> tuple[list[ProbeRun], Goodput | None]:
        """Probe rates until the goodput is known; None for it when the search was stopped.

        A probe begins when the server has answered everything of the one before and has rested.
        """
        steps = RateSearch(search.low, search.high, search.resolution)
        probes: list[ProbeRun] = []
        while (rate := steps.next_rate()) is not None:
            probe = await self._probe(rate, search)
            if probe is None or probe.measured.attainment is None:
                return probes, None
            probes.append(probe)
            steps.observe(rate, probe.measured.attainment)
        return probes, steps.result()

    async def _probe(self, rate: float, search: SearchSettings) -> ProbeRun | None:
        runs = []
        for repetition in range(search.repetitions):
            label = f"{rate:g}/s"
            if search.repetitions > 1:
                label += f", {repetition + 1} of {search.repetitions}"
            workload, records = await self._run(rate, label)
            if self._stop.is_set():
                return None
            runs.append(records)
            await asyncio.sleep(search.drain_s)
        measured = measure(runs, self._settings.targets, self._settings.counting)
        return ProbeRun(rate=rate, workload=workload, measured=measured)

    async def _run(self, rate: float, label: str) -> tuple[Workload, list[RequestRecord]]:
        settings = self._settings
        seed = reseeded(settings.options.seed, self._num_runs)
        self._num_runs += 1
        workload = schedule(self._requests, settings.arrivals, rate, seed)
        options = msgspec.structs.replace(settings.options, abilities=self._abilities, seed=seed)
        watching = self._watch(label, workload)
        records = await run_load(settings.target, workload, options, watching, stop=self._stop)
        return workload, records


def as_probes(runs: list[ProbeRun]) -> list[Probe]:
    """For the curve of attainment by rate."""
    return [
        Probe(rate=run.rate, attainment=run.measured.attainment)
        for run in runs
        if run.measured.attainment is not None
    ]


def best_of(runs: list[ProbeRun], goodput: Goodput | None) -> ProbeRun:
    """The probe whose details are shown: the highest rate that passed, or the lowest one."""
    wanted = goodput.joint.rate if goodput else None
    return min(runs, key=lambda run: abs(run.rate - wanted) if wanted else run.rate)
