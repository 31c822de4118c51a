"""Control messages in virtual time: latency, loss, repetition, reordering, partitions, clogs."""

from collections import Counter, deque
from collections.abc import Callable, Sequence

from baton.core.messages import Envelope, Hello
from baton.nodes.context import ROUTER
from baton.sim.dice import roll
from baton.sim.faults import Clog, Counted, MessageFault, Partition
from baton.sim.forgery import KINDS, Forgery
from baton.sim.plan import Plan
from baton.sim.timeline import Timeline


class Network:
    """Delivers envelopes between named processes. A lane keeps its order unless a fault breaks it.

    `applied` collects every counted fault that happened; `healed` ends all faults.
    """

    def __init__(
        self,
        plan: Plan,
        timeline: Timeline,
        deliver: Callable[[str, Envelope], None],
        applied: list[Counted],
        life_of: Callable[[str], int],
    ) -> None:
        self._plan = plan
        self._timeline = timeline
        self._deliver = deliver
        self._applied = applied
        self._life_of = life_of
        self._numbers: Counter[str] = Counter()
        self._ready_us: dict[str, int] = {}
        self._listed = {
            (fault.lane, fault.number): fault
            for fault in plan.counted
            if isinstance(fault, MessageFault)
        }
        self._blocked: list[Partition | Clog] = []
        self._clogged: deque[tuple[str, Envelope]] = deque()
        self._forgery = Forgery()
        self._hellos: dict[str, Envelope] = {}
        self.healed = False
        self.tamper: Callable[[str, Envelope], Sequence[int]] | None = None
        """For stories: the delays after which a message arrives; none at all drops it, and one
        without delay keeps the order of its lane."""

    def block(self, fault: Partition | Clog) -> None:
        """A partition or a clog begins."""
        self._blocked.append(fault)
        self._timeline.after(fault.duration_us, self._unclog)

    def heal(self) -> None:
        """No fault happens any more, and what was held up arrives."""
        self.healed = True
        self._unclog()

    def _unclog(self) -> None:
        waiting, self._clogged = self._clogged, deque()
        for receiver, envelope in waiting:
            if any(isinstance(f, Clog) for f in self._open_faults(envelope.sender_id, receiver)):
                self._clogged.append((receiver, envelope))
            else:
                self._arrive(self._timeline.now_us, receiver, envelope)

    def is_partitioned(self, sender: str, receiver: str) -> bool:
        """True while nothing passes between the two."""
        return any(isinstance(fault, Partition) for fault in self._open_faults(sender, receiver))

    def _open_faults(self, sender: str, receiver: str) -> list[Partition | Clog]:
        if not self._blocked or self.healed:
            return []
        now_us, pair = self._timeline.now_us, {sender, receiver}
        self._blocked = [f for f in self._blocked if f.at_us + f.duration_us > now_us]
        return [fault for fault in self._blocked if pair == set(fault.between)]

    def send(self, receiver: str, envelope: Envelope) -> None:
        """Put a message on its lane."""
        sender = envelope.sender_id
        lane = f"{sender}>{receiver}"
        self._numbers[lane] += 1
        number = self._numbers[lane]
        hardware = self._plan.hardware
        jitter_us = int(
            roll(self._plan.seed, f"jitter {lane}", number) * hardware.control_jitter_us
        )
        at_us = self._timeline.now_us + hardware.control_us + jitter_us
        if self.tamper is not None:
            for delay_us in self.tamper(receiver, envelope):
                due_us = at_us + delay_us if delay_us else self._in_order(lane, at_us)
                self._arrive(due_us, receiver, envelope)
            return
        if isinstance(envelope.message, Hello):
            self._hellos.setdefault(sender, envelope)
        fault = self._fault(lane, number, envelope)
        self._forgery.see(envelope)
        if fault is not None and fault.kind in KINDS:
            envelope, fault = self._alter(fault, receiver, envelope), None
        open_faults = self._open_faults(sender, receiver)
        if any(isinstance(blocked, Partition) for blocked in open_faults):
            return
        if fault is not None and fault.kind == "drop":
            return
        if open_faults:
            self._clogged.append((receiver, envelope))
            return
        if fault is not None and fault.kind == "reorder":
            self._arrive(at_us + fault.delay_us, receiver, envelope)
            return
        at_us = self._in_order(lane, at_us)
        self._arrive(at_us, receiver, envelope)
        if fault is not None:
            self._arrive(at_us + fault.delay_us, receiver, envelope)

    def _alter(self, fault: MessageFault, receiver: str, envelope: Envelope) -> Envelope:
        """What goes on its way; an intruder's word arrives first, on a lane of its own."""
        altered = self._forgery.altered(fault.kind, fault.number, envelope)
        assert altered is not None
        if fault.kind != "intrude":
            return altered
        self._arrive(self._timeline.now_us + self._plan.hardware.control_us, receiver, altered)
        return envelope

    def echo(self, worker_id: str) -> int:
        """The first hello of a worker arrives again; the life that said it."""
        envelope = self._hellos[worker_id]
        self._arrive(self._timeline.now_us + self._plan.hardware.control_us, ROUTER, envelope)
        return envelope.sender_epoch

    def _in_order(self, lane: str, at_us: int) -> int:
        """When a message arrives that does not overtake what its lane already carries."""
        at_us = self._ready_us[lane] = max(at_us, self._ready_us.get(lane, 0))
        return at_us

    def _arrive(self, at_us: int, receiver: str, envelope: Envelope) -> None:
        life = self._life_of(receiver)

        def arrive() -> None:
            if self._life_of(receiver) == life:
                self._deliver(receiver, envelope)

        self._timeline.at(at_us, arrive)

    def _fault(self, lane: str, number: int, envelope: Envelope) -> MessageFault | None:
        if self.healed:
            return None
        fault = self._listed.get((lane, number))
        if fault is None and not self._plan.replayed:
            fault = self._drawn(lane, number)
        if fault is None:
            return None
        if fault.kind in KINDS and self._forgery.altered(fault.kind, number, envelope) is None:
            return None  # there is nothing in this message to alter
        self._applied.append(fault)
        return fault

    def _drawn(self, lane: str, number: int) -> MessageFault | None:
        rates, seed = self._plan.rates, self._plan.seed
        left = roll(seed, lane, number)
        for kind in ("drop", "duplicate", "reorder", *KINDS):
            left -= getattr(rates, kind)
            if left < 0:
                delay_us = int(10 ** (2 + 4 * roll(seed, f"delay {lane}", number)))
                return MessageFault(lane=lane, number=number, kind=kind, delay_us=delay_us)
        return None
