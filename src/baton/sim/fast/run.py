"""Runs a deployment under a workload, in one go or slice by slice."""

import copy
import math

import numpy as np

from baton.sim.fast import columns as c
from baton.sim.fast.build import build, workers_of
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.failures import change_worker
from baton.sim.fast.gaps import gap_edges_us
from baton.sim.fast.loop import run_until
from baton.sim.fast.result import FastResult, Workers
from baton.sim.fast.state import State
from baton.sim.fast.stretches import settle_all
from baton.sim.fast.workload import FastWorkload


class Simulation:
    """One simulation under way. Slices change nothing: only the end counts."""

    def __init__(self, deployment: Deployment, workload: FastWorkload) -> None:
        self._deployment = deployment
        self._is_over, self._until_us = False, 0.0
        self._state, self._network, self._extras = build(deployment, workload)

    def run_until(self, stop_us: float = math.inf) -> bool:
        """Go on up to a simulated time; whether every request has its end."""
        self._until_us = max(self._until_us, stop_us)
        status = self._go_on(stop_us)
        while status in (c.HEAP_FULL, c.WORKER_CHANGED):
            if status == c.HEAP_FULL:
                self._double_heap()
            else:
                kind, worker = (int(self._state.events[0, one]) for one in (c.V_KIND, c.V_ID))
                change_worker(self._state, self._network, self._extras, kind, worker)
            status = self._go_on(stop_us)
        self._is_over = status == c.DONE
        return self._is_over

    def _go_on(self, stop_us: float) -> int:
        return run_until(self._state, self._network, self._extras, float(stop_us))

    @property
    def num_ended(self) -> int:
        """Requests that are over, for progress."""
        return len(self._state.requests) - int(self._state.counts[c.C_NUM_OPEN])

    def _looked_at(self) -> "Simulation":
        """A copy that has nothing under way but single steps: looking changes nothing."""
        seen = copy.copy(self)
        seen._is_over = True
        held = {name: one.copy() for name, one in self._state._asdict().items()}
        seen._state = State(**held)
        settle_all(seen._state, self._extras, self._until_us)
        return seen

    def _double_heap(self) -> None:
        state = self._state
        self._state = state._replace(
            event_us=np.concatenate([state.event_us, np.zeros_like(state.event_us)]),
            events=np.concatenate([state.events, np.zeros_like(state.events)]),
        )

    def result(self) -> FastResult:
        """What was found so far, also in the middle."""
        if not self._is_over:
            return self._looked_at().result()
        times, numbers, counts = self._state.request_us, self._state.requests, self._state.counts
        return FastResult(
            arrival_us=times[:, c.R_ARRIVAL_US].copy(),
            num_prompt=numbers[:, c.R_PROMPT].copy(),
            num_output=numbers[:, c.R_PRODUCED].copy(),
            end=numbers[:, c.R_END].astype(np.int8),
            first_us=times[:, c.R_FIRST_US].copy(),
            last_us=times[:, c.R_LAST_US].copy(),
            noticed_us=times[:, c.R_NOTICED_US].copy(),
            prefill_start_us=times[:, c.R_START_US].copy(),
            prefill_end_us=times[:, c.R_PREFILLED_US].copy(),
            moved_us=times[:, c.R_MOVED_US].copy(),
            num_cached=numbers[:, c.R_CACHED].copy(),
            num_moved=numbers[:, c.R_MOVED].copy(),
            num_preempted=numbers[:, c.R_PREEMPTED].copy(),
            prefill_worker=numbers[:, c.R_PREFILL].copy(),
            decode_worker=numbers[:, c.R_DECODE].copy(),
            workers=self._workers(),
            gap_edges_us=gap_edges_us(),
            gap_counts=self._state.gaps.copy(),
            duration_us=float(self._state.numbers[c.N_DURATION_US]),
            num_events=int(counts[c.C_NUM_EVENTS]),
            counters={name: int(counts[column]) for name, column in c.COUNTERS.items()},
        )

    def _workers(self) -> Workers:
        groups, numbers = workers_of(self._deployment), self._state.workers
        return Workers(
            names=tuple(f"{group.name}-{number}" for number, group in enumerate(groups)),
            busy_us=self._state.worker_us[:, c.W_BUSY_US].copy(),
            num_steps=numbers[:, c.W_NUM_STEPS].copy(),
            num_extrapolated=numbers[:, c.W_NUM_OUTSIDE].copy(),
            num_rows=numbers[:, c.W_NUM_ROWS].copy(),
            peak_tokens=numbers[:, c.W_PEAK_BLOCKS] * numbers[:, c.W_BLOCK_SIZE],
        )


def simulate_fast(
    deployment: Deployment, workload: FastWorkload, *, stop_us: float = math.inf
) -> FastResult:
    """What happens to every request, up to a simulated time. Equal arguments, equal results."""
    simulation = Simulation(deployment, workload)
    simulation.run_until(stop_us)
    return simulation.result()
