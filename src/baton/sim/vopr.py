"""Runs a plan: safety under faults, then heal, liveness in bounded time, probes, leak check."""

from collections import Counter
from collections.abc import Callable
from typing import NoReturn

import msgspec

from baton.core.delivery import Failed, Finished
from baton.core.request import Request, SamplingParams
from baton.sim.checks import all_checkers
from baton.sim.checks.leaks import leftovers
from baton.sim.faults import Counted, Hang
from baton.sim.observer import Observer, Violation
from baton.sim.plan import Arrival, Plan
from baton.sim.world import World

_POLL_US = 50_000
_MAX_EVENTS = 300_000
_NUM_PROBES = 2
_CALM_REFUSALS = (
    *("queue_timeout", "not_ready", "queue_full", "too_large"),
    *("ttft_slo", "tpot_slo", "prefill_load", "decode_load"),
)
"""What a client may be told though nothing is wrong: there was no room, or not in time."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run showed. `checker` is empty when every invariant held."""

    seed: int
    trace_hash: str
    checker: str = ""
    text: str = ""
    num_events: int
    virtual_us: int
    ends: dict[str, int]
    faults: dict[str, int]
    marks: dict[str, int]
    """Named outcomes that the nodes counted: what this run has been through."""
    applied: tuple[Counted, ...] = ()

    @property
    def clean(self) -> bool:
        """True when every invariant held."""
        return not self.checker


def run_plan(plan: Plan, watcher: Observer | None = None) -> Outcome:
    """Run a plan to its end or to the first violation; `watcher` sees everything first."""
    run = _Run(plan, watcher)
    checker = text = ""
    try:
        run.play()
    except Violation as violation:
        checker, text = violation.checker, violation.text
    except Exception as error:
        # Our own asserts and tables are checkers too, and a node must raise nothing at all.
        checker, text = "node-raises", f"{type(error).__name__}: {error} {_place(error)}"
    return run.outcome(checker, text)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    return f"({code.co_filename.rsplit('/baton/')[-1]}:{trace.tb_lineno} {code.co_name})"


class _Run:
    """One run and its phases."""

    def __init__(self, plan: Plan, watcher: Observer | None) -> None:
        self.plan = plan
        self.world = World(plan, [*([watcher] if watcher else []), *all_checkers()])

    def play(self) -> None:
        """Every phase in order; a violation ends them."""
        self._advance(self.plan.fault_end_us)
        self.world.heal()
        self._until(lambda: not self._waiting(), self._liveness_us, self._waiting)
        self._judge_calm()
        self._until(lambda: not self._hanging(), self._liveness_us, self._hanging)
        self._restart_idle()
        self._until(self._whole, 10_000_000, self._missing)
        self._quiesce()
        self._probe()
        self._quiesce()

    def _hanging(self) -> str:
        """Workers whose engine hangs over an order: the supervisor has to end them."""
        engines = {name: worker.engine for name, worker in self.world.workers.items()}
        return ", ".join(f"{n} hangs" for n, e in engines.items() if e.hangs and e.is_busy)

    def _restart_idle(self) -> None:
        """An engine that hangs and has nothing to do cannot be noticed; a probe would end there."""
        for name, worker in list(self.world.workers.items()):
            if worker.engine.hangs:
                self.world.crash(name, noticed_after_us=1_000, down_us=100_000)

    def _whole(self) -> bool:
        return not self._missing()

    def _missing(self) -> str:
        """Every worker lives, and a few heartbeats have told everybody of everybody."""
        world, router = self.world, self.world.router
        known = {view.info.worker_id: view.info.epoch for view in router.fleet}
        living = {name: worker.epoch for name, worker in world.workers.items()}
        if known != living or len(living) != len(self.plan.roles):
            return f"{known} are known to the router, {living} live"
        for name, worker in world.workers.items():
            peers = {p.worker_id: p.epoch for p in worker.node.context.peers.values()}
            others = {other: epoch for other, epoch in living.items() if other != name}
            if peers != others:
                return f"{name} knows {peers}, {others} live"
        return router.missing(world.router_now_us)

    def _quiesce(self) -> None:
        self._until(lambda: not leftovers(self.world), self._quiet_us, lambda: "", strict=False)
        self.world.observe(lambda o: o.quiet(self.world))

    @property
    def _liveness_us(self) -> int:
        router, transfer = self.plan.router, self.plan.transfer
        attempt_ms = 3 * router.attempt_timeout_ms
        if any(isinstance(fault, Hang) for fault in self.plan.scheduled):
            attempt_ms += router.batch_timeout_ms + router.decode_stall_ms
        attempts_ms = (router.max_attempts + 1) * attempt_ms
        return (router.ttft_budget_ms + attempts_ms + 4 * transfer.lease_ms + 30_000) * 1000

    @property
    def _quiet_us(self) -> int:
        transfer = self.plan.transfer
        return (2 * transfer.lease_ms + 30 * transfer.retry_ms + 5_000) * 1000

    def _advance(self, end_us: int) -> None:
        timeline = self.world.timeline
        timeline.run_until(end_us)
        if self.world.num_events > _MAX_EVENTS:
            self._stuck(f"{self.world.num_events} events and no end")

    def _until(
        self,
        holds: Callable[[], bool],
        limit_us: int,
        explain: Callable[[], str],
        *,
        strict: bool = True,
    ) -> None:
        end_us = self.world.timeline.now_us + limit_us
        while not holds():
            if self.world.timeline.now_us >= end_us:
                if strict:
                    self._stuck(f"after {limit_us / 1e6:.0f} s without faults: {explain()}")
                return
            self._advance(self.world.timeline.now_us + _POLL_US)

    def _stuck(self, text: str) -> NoReturn:
        raise Violation("liveness", text)

    def _waiting(self) -> str:
        records = self.world.router.records.values()
        late = [a for a in self.plan.arrivals if a.request.request_id not in self.world.deliveries]
        open_requests = [f"{r.request.request_id} {r.state} attempt {r.attempt}" for r in records]
        return ", ".join([*open_requests, *(f"{a.request.request_id} not sent" for a in late)])

    def _judge_calm(self) -> None:
        """Without a fault there is no failure."""
        if self.plan.scheduled or self.world.applied:
            return
        for arrival in self.plan.arrivals:
            end = self.world.end_of(arrival.request.request_id)
            if isinstance(end, Failed) and end.code not in _CALM_REFUSALS:
                raise Violation("calm-serves", f"{arrival.request.request_id}: {end}")

    @property
    def _num_rows(self) -> int:
        """Rows that a request may have wherever it is served."""
        return min(self.plan.max_model_len - 1, min(self.plan.capacities))

    def _probe(self) -> None:
        """A healed deployment answers new requests, the first of them twice."""
        for number in range(_NUM_PROBES):
            request = Request(
                request_id=f"probe{number}",
                prompt_token_ids=(7, 7, 7, 7, 7)[: max(1, self._num_rows - 2)],
                sampling=SamplingParams(max_tokens=2),
            )
            self.world.submit(Arrival(at_us=0, request=request))
            self._until(lambda: not self.world.router.records, self._liveness_us, self._waiting)
            end = self.world.end_of(request.request_id)
            if not isinstance(end, Finished):
                raise Violation("liveness", f"a healed deployment fails a probe: {end}")

    def outcome(self, checker: str, text: str) -> Outcome:
        """Sum the run up."""
        world = self.world
        ends: Counter[str] = Counter()
        for request_id in world.deliveries:
            end = world.end_of(request_id)
            if isinstance(end, Finished):
                ends[end.finish_reason] += 1
            else:
                ends[f"failed: {end.code}" if end else "open"] += 1
        faults = Counter(type(f).__name__.lower() for f in self.plan.scheduled)
        faults.update(getattr(fault, "kind", "engine") for fault in world.applied)
        return Outcome(
            seed=self.plan.seed,
            trace_hash=world.trace_hash,
            checker=checker,
            text=text,
            num_events=world.num_events,
            virtual_us=world.timeline.now_us,
            ends=dict(ends),
            faults=dict(faults),
            marks=dict(world.marks()),
            applied=tuple(world.applied),
        )
