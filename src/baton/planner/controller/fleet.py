"""Workers that come, drain, flip and go, and what is paid for them."""

import msgspec

from baton.core.ids import Role
from baton.policy.replan import Action, Kind
from baton.sim.fast.elastic import ElasticSimulation


class Slot(msgspec.Struct, kw_only=True):
    """A place for one worker; off unless it is one of the others."""

    role: Role
    number: int
    """In the simulation."""
    is_ready: bool = False
    is_draining: bool = False
    ready_at_us: float | None = None
    """It is starting, and takes requests then."""
    flips: bool = False
    """Its GPUs serve the other phase once it is drained."""

    @property
    def is_paid(self) -> bool:
        """It holds GPUs."""
        return self.is_ready or self.is_draining or self.ready_at_us is not None


class Fleet:
    """As many slots of each role as the budget could ever fill."""

    def __init__(
        self, num_slots: dict[Role, int], opened: dict[Role, int], gpus: dict[Role, int]
    ) -> None:
        self._slots: list[Slot] = []
        for role, num in num_slots.items():
            first = len(self._slots)
            self._slots += [
                Slot(role=role, number=first + at, is_ready=at < opened[role]) for at in range(num)
            ]
        self._gpus = gpus
        self.gpu_us = 0.0
        self._paid_until_us = 0.0

    @property
    def opened(self) -> list[int]:
        """Numbers of the workers that take requests."""
        return [slot.number for slot in self._slots if slot.is_ready]

    def counts(self) -> dict[Role, tuple[int, int, int]]:
        """Ready, starting and draining workers."""
        return {
            role: (
                sum(slot.is_ready for slot in self._of(role)),
                sum(slot.ready_at_us is not None for slot in self._of(role)),
                sum(slot.is_draining for slot in self._of(role)),
            )
            for role in (Role.PREFILL, Role.DECODE)
        }

    def next_ready_us(self) -> float | None:
        """When the next worker that is starting will be ready."""
        times = [slot.ready_at_us for slot in self._slots if slot.ready_at_us is not None]
        return min(times, default=None)

    def pay(self, now_us: float) -> None:
        """For every worker since the last time."""
        spent_us = now_us - self._paid_until_us
        self.gpu_us += spent_us * sum(self._gpus[one.role] for one in self._slots if one.is_paid)
        self._paid_until_us = now_us

    def make_ready(self, simulation: ElasticSimulation, now_us: float) -> None:
        """Whoever has started takes requests."""
        for slot in self._slots:
            if slot.ready_at_us is not None and slot.ready_at_us <= now_us:
                slot.ready_at_us, slot.is_ready = None, True
                simulation.open(slot.number, now_us)

    def release_drained(self, simulation: ElasticSimulation, now_us: float, flip_us: float) -> None:
        """Whoever has nothing left goes, or begins to serve the other phase."""
        for slot in self._slots:
            if slot.is_draining and simulation.is_drained(slot.number):
                slot.is_draining = False
                simulation.end(slot.number, now_us)
                if slot.flips:
                    slot.flips = False
                    other = Role.DECODE if slot.role is Role.PREFILL else Role.PREFILL
                    self._start(other, now_us + flip_us)

    def act(self, action: Action, simulation: ElasticSimulation, ready_at_us: float) -> None:
        """Start one, or drain the one with the least to do."""
        if action.kind is Kind.START:
            self._start(action.role, ready_at_us)
            return
        ready = [slot for slot in self._of(action.role) if slot.is_ready]
        # The least loaded one is soonest gone; among equals the youngest, whose cache is smallest.
        slot = min(ready, key=lambda one: (*simulation.load(one.number), -one.number))
        simulation.close(slot.number)
        slot.is_ready, slot.is_draining = False, True
        slot.flips = action.kind is Kind.FLIP

    def _start(self, role: Role, ready_at_us: float) -> None:
        slot = next(one for one in self._of(role) if not one.is_paid)
        slot.ready_at_us = ready_at_us

    def _of(self, role: Role) -> list[Slot]:
        return [slot for slot in self._slots if slot.role is role]
