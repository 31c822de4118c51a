"""The controller in the loop: slices of the simulation, a decision between each two."""

from collections.abc import Callable

import msgspec
import numpy as np

from baton.core.ids import Role
from baton.planner.controller.fleet import Fleet
from baton.planner.controller.scene import Scene
from baton.planner.controller.sight import Sight
from baton.policy.replan import Kind, ReplanState, replan
from baton.policy.replan_signals import ReplanRules
from baton.sim.fast.elastic import ElasticSimulation
from baton.sim.fast.result import FastResult
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

US_PER_S, US_PER_HOUR = 1e6, 3.6e9
MAX_IDLE_SLICES = 100_000
"""Without progress, after which a run that cannot end is given up."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One action, and the workers before it."""

    at_s: float
    kind: Kind
    role: Role
    reason: str
    num_prefill: int
    num_decode: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One plan or controller over a whole workload."""

    name: str
    gpu_hours: float
    ttft_mean_ms: float
    ttft_p50_ms: float
    ttft_p90_ms: float
    ttft_p99_ms: float
    tpot_p99_ms: float
    ttft_met: float
    tpot_met: float
    num_completed: int
    num_requests: int
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    """What would have helped and was not done."""


def run_static(
    scene: Scene, workload: FastWorkload, rules: ReplanRules, num_prefill: int, num_decode: int
) -> Outcome:
    """So many workers from the first arrival to the last end."""
    result = simulate_fast(scene.deployment(num_prefill, num_decode), workload)
    gpus = num_prefill * scene.prefill.gpus + num_decode * scene.decode.gpus
    hours = gpus * result.duration_us / US_PER_HOUR
    return _outcome(f"static {num_prefill}P+{num_decode}D", result, rules, hours)


def run_controlled(
    scene: Scene,
    workload: FastWorkload,
    rules: ReplanRules,
    *,
    num_prefill: int,
    num_decode: int,
    interval_us: float,
    say: Callable[[float], None] = lambda share: None,
) -> Outcome:
    """The controller decides every interval; `say` is told the share of requests that are over."""
    slots = {
        Role.PREFILL: rules.max_gpus // scene.prefill.gpus,
        Role.DECODE: rules.max_gpus // scene.decode.gpus,
    }
    fleet = Fleet(
        slots,
        {Role.PREFILL: num_prefill, Role.DECODE: num_decode},
        {Role.PREFILL: scene.prefill.gpus, Role.DECODE: scene.decode.gpus},
    )
    deployment = scene.deployment(slots[Role.PREFILL], slots[Role.DECODE])
    simulation = ElasticSimulation(deployment, workload, fleet.opened)
    sight = Sight(workload, scene.prompt_us(workload.num_prompt), rules)
    loop = _Loop(scene, simulation, fleet, sight, rules, interval_us)
    while not loop.slice():
        say(simulation.num_ended / len(workload))
    result = simulation.result()
    fleet.pay(result.duration_us)
    outcome = _outcome("controller", result, rules, fleet.gpu_us / US_PER_HOUR)
    return msgspec.structs.replace(
        outcome, steps=tuple(loop.steps), notes=tuple(dict.fromkeys(loop.notes))
    )


class _Loop:
    """The state between slices."""

    def __init__(
        self,
        scene: Scene,
        simulation: ElasticSimulation,
        fleet: Fleet,
        sight: Sight,
        rules: ReplanRules,
        interval_us: float,
    ) -> None:
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self._scene, self._simulation, self._fleet = scene, simulation, fleet
        self._sight, self._rules, self._interval_us = sight, rules, interval_us
        self._state = ReplanState()
        self._tick_us = interval_us
        self._num_idle, self._num_ended = 0, 0

    def slice(self) -> bool:
        """Up to the next decision; whether every request is over."""
        while (ready_us := self._fleet.next_ready_us()) is not None and ready_us < self._tick_us:
            if self._simulation.run_until(ready_us):
                return True
            self._fleet.pay(ready_us)
            self._fleet.make_ready(self._simulation, ready_us)
        if self._simulation.run_until(self._tick_us):
            return True
        self._decide(self._tick_us)
        self._tick_us += self._interval_us
        self._num_idle = 0 if self._simulation.num_ended > self._num_ended else self._num_idle + 1
        self._num_ended = self._simulation.num_ended
        return self._num_idle > MAX_IDLE_SLICES

    def _decide(self, now_us: float) -> None:
        fleet, rules = self._fleet, self._rules
        fleet.pay(now_us)
        fleet.make_ready(self._simulation, now_us)
        fleet.release_drained(self._simulation, now_us, rules.flip_us)
        counts = fleet.counts()
        signals = self._sight.signals(self._simulation, now_us, self._interval_us, counts)
        rates = self._scene.rates(signals.mean_context)
        self._state, decision = replan(self._state, signals, rates, rules)
        if decision.note:
            self.notes.append(decision.note)
        for action in decision.actions:
            self.steps.append(
                Step(
                    at_s=now_us / US_PER_S,
                    kind=action.kind,
                    role=action.role,
                    reason=action.reason,
                    num_prefill=counts[Role.PREFILL][0],
                    num_decode=counts[Role.DECODE][0],
                )
            )
            fleet.act(action, self._simulation, now_us + rules.start_us)


def _outcome(name: str, result: FastResult, rules: ReplanRules, gpu_hours: float) -> Outcome:
    done = result.is_completed
    ttft, tpot = result.ttft_us[done], result.tpot_us[done]
    tpot = tpot[~np.isnan(tpot)]
    p50, p90, p99 = (float(np.percentile(ttft, q)) / 1e3 for q in (50, 90, 99))
    num = len(result.end)
    return Outcome(
        name=name,
        gpu_hours=gpu_hours,
        ttft_mean_ms=float(ttft.mean()) / 1e3,
        ttft_p50_ms=p50,
        ttft_p90_ms=p90,
        ttft_p99_ms=p99,
        tpot_p99_ms=float(np.percentile(tpot, 99)) / 1e3 if len(tpot) else 0.0,
        ttft_met=float((ttft <= rules.ttft_us).sum()) / num,
        tpot_met=1.0 - float((tpot > rules.tpot_us).sum() + num - int(done.sum())) / num,
        num_completed=int(done.sum()),
        num_requests=num,
    )
