"""What a host sees each interval: from the simulated requests to the controller's signals."""

import numpy as np
from numpy.typing import NDArray

from baton.core.ids import Role
from baton.policy.replan_signals import PoolSignals, ReplanRules, Signals
from baton.sim.fast import columns as c
from baton.sim.fast.elastic import ElasticSimulation
from baton.sim.fast.workload import FastWorkload

LEAST_SEEN = 20
"""Requests below which a mean is that of a guess."""
GUESSED_OUTPUT = 256.0


class Sight:
    """Looks at requests that have arrived, and at nothing that has not happened yet."""

    def __init__(
        self, workload: FastWorkload, prompt_us: NDArray[np.float64], rules: ReplanRules
    ) -> None:
        self._arrival_us = workload.arrival_us
        self._num_prompt = workload.num_prompt
        self._prompt_us = prompt_us
        self._rules = rules
        self._hit_share = 0.0

    def signals(
        self,
        simulation: ElasticSimulation,
        now_us: float,
        interval_us: float,
        counts: dict[Role, tuple[int, int, int]],
    ) -> Signals:
        """`counts` are workers that are ready, starting and draining, by role."""
        arrived = int(np.searchsorted(self._arrival_us, now_us, side="right"))
        before = int(np.searchsorted(self._arrival_us, now_us - interval_us, side="right"))
        since = int(np.searchsorted(self._arrival_us, now_us - self._rules.long_us, side="right"))
        recent = slice(min(since, max(0, arrived - LEAST_SEEN)), arrived)
        self._look_at_hits(simulation, recent)
        left = 1.0 - self._hit_share
        work = self._prompt_us[recent] * left
        mean_us = float(work.mean()) if len(work) else 0.0
        output = self._mean_output(simulation, arrived, now_us)
        prompt = float(self._num_prompt[recent].mean()) if arrived else 0.0
        phases = simulation.phases[:arrived]
        waits, waiting_us = self._waiting(simulation, phases, left)
        at_router = int((phases == c.WAITING).sum())
        decoding = int(((phases == c.DECODING) | (phases == c.MOVING)).sum())
        return Signals(
            now_us=now_us,
            interval_us=interval_us,
            num_arrivals=arrived - before,
            arrived_us=float(self._prompt_us[before:arrived].sum()) * left,
            prompt_cv2=float(work.var() / mean_us**2) if mean_us else 0.0,
            prompt_tail_us=_quantile(work, self._rules.attainment),
            mean_output=output,
            mean_context=prompt + output / 2,
            prefill=_pool(counts[Role.PREFILL], waiting=waits, waiting_us=waiting_us),
            decode=_pool(counts[Role.DECODE], waiting=at_router, active=decoding),
            ttft_met=self._ttft_met(simulation, now_us, arrived),
            tpot_met=self._tpot_met(simulation, now_us, interval_us, arrived),
        )

    def _look_at_hits(self, simulation: ElasticSimulation, recent: slice) -> None:
        """Share of prompt rows that caches held, of prompts that are computed."""
        done = ~np.isnan(simulation.first_us[recent])
        rows = int(self._num_prompt[recent][done].sum())
        if rows:
            self._hit_share = float(simulation.cached[recent][done].sum()) / rows

    def _waiting(
        self, simulation: ElasticSimulation, phases: NDArray[np.int64], left: float
    ) -> tuple[int, float]:
        """Prompts that are not computed, and their work for one worker."""
        waits = (phases == c.WAITING) | (phases == c.ROUTED) | (phases == c.QUEUED)
        num = len(phases)
        missing = 1.0 - simulation.computed[:num] / np.maximum(1, self._num_prompt[:num])
        work = self._prompt_us[:num] * np.clip(missing, 0.0, left)
        return int(waits.sum()), float(work[waits].sum())

    def _mean_output(self, simulation: ElasticSimulation, arrived: int, now_us: float) -> float:
        """Of answers that ended lately; answers under way are at least as long as they are."""
        last = simulation.last_us[:arrived]
        ended = (simulation.phases[:arrived] == c.ENDED) & (last > now_us - self._rules.long_us)
        produced = simulation.produced[:arrived]
        if int(ended.sum()) >= LEAST_SEEN:
            return float(produced[ended].mean())
        under_way = produced[simulation.phases[:arrived] == c.DECODING]
        return max(GUESSED_OUTPUT, float(under_way.mean()) if len(under_way) else 0.0)

    def _ttft_met(self, simulation: ElasticSimulation, now_us: float, arrived: int) -> float | None:
        """Of requests that came within a short while: those still waiting too long have missed."""
        begin_us = now_us - self._rules.short_us
        begin = int(np.searchsorted(self._arrival_us, begin_us, side="right"))
        arrival, first = self._arrival_us[begin:arrived], simulation.first_us[begin:arrived]
        waited = np.where(np.isnan(first), now_us, first) - arrival
        judged = ~np.isnan(first) | (waited > self._rules.ttft_us)
        if not judged.any():
            return None
        return float((waited[judged] <= self._rules.ttft_us).mean())

    def _tpot_met(
        self, simulation: ElasticSimulation, now_us: float, interval_us: float, arrived: int
    ) -> float | None:
        last, first = simulation.last_us[:arrived], simulation.first_us[:arrived]
        produced = simulation.produced[:arrived]
        with np.errstate(invalid="ignore"):
            ended = (last > now_us - interval_us) & (produced >= 2)
        ended &= simulation.phases[:arrived] == c.ENDED
        if not ended.any():
            return None
        each = (last[ended] - first[ended]) / (produced[ended] - 1)
        return float((each <= self._rules.tpot_us).mean())


def _pool(
    counts: tuple[int, int, int], *, waiting: int, waiting_us: float = 0.0, active: int = 0
) -> PoolSignals:
    ready, starting, draining = counts
    return PoolSignals(
        ready=ready,
        starting=starting,
        draining=draining,
        waiting=waiting,
        waiting_us=waiting_us,
        active=active,
    )


def _quantile(work: NDArray[np.float64], share: float) -> float:
    return float(np.quantile(work, share)) if len(work) else 0.0
