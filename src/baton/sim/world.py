"""A deployment in virtual time: router, workers, supervisor, network and clients."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from baton.core import effects, events
from baton.core.delivery import Delivery, Failed, Finished
from baton.core.events import Event
from baton.core.layout import ModelInfo
from baton.core.messages import Envelope
from baton.nodes.context import ROUTER
from baton.nodes.router import Router
from baton.protocol.signing import Ed25519Signer, Ed25519Verifier, HmacKey, Signer, Verifier
from baton.sim.arithmetic import model_info
from baton.sim.clock import Clock
from baton.sim.faults import (
    ChunkFault,
    Clear,
    Clog,
    Counted,
    Crash,
    Echo,
    EngineFault,
    GiveUp,
    Hang,
    MessageFault,
    Partition,
    Revoke,
    Scheduled,
    Slow,
    Stall,
)
from baton.sim.network import Network
from baton.sim.observer import Observer
from baton.sim.plan import Arrival, Plan
from baton.sim.step_time import LinearStepTime, StepTime
from baton.sim.tiers import Disk
from baton.sim.timeline import Timeline
from baton.sim.worker import SimWorker

_WATCH_US = 500_000
_PLACES = {"digest": "digest", "tier_fail": "tier", "tier_corrupt": "tier"}
"""Where faults are counted that do not hit a copy between workers."""
KEY = HmacKey(ROUTER, b"a simulated deployment's one key")
"""What a deployment without a private key signs with; every worker of it knows the secret."""


class World:
    """Runs a plan. `trace_hash` covers every event that a node was given, and when."""

    def __init__(
        self,
        plan: Plan,
        observers: Sequence[Observer] = (),
        step_time: StepTime | None = None,
    ) -> None:
        self.plan = plan
        self.step_time = step_time or LinearStepTime(plan.hardware)
        signer, self.verifier = _keys(plan)
        self.observers = observers
        self.timeline = Timeline()
        self.applied: list[Counted] = []
        self.network = Network(plan, self.timeline, self._deliver, self.applied, self._life_of)
        self.listed: dict[tuple[str, str, int], ChunkFault | EngineFault] = {}
        for fault in plan.counted:
            if not isinstance(fault, MessageFault):
                place = "engine" if isinstance(fault, EngineFault) else "chunk"
                place = _PLACES.get(getattr(fault, "kind", ""), place)
                self.listed[place, fault.worker_id, fault.number] = fault
        self.model = model_info(plan.worker.block_size, plan.num_layers, plan.max_model_len)
        self.router = Router(plan.router, plan.transfer, plan.cache, signer=signer)
        self.deliveries: dict[str, list[Delivery]] = {}
        self.num_events = 0
        self._marks: Counter[str] = Counter()
        self._router_clock = plan.clocks.get(ROUTER, Clock())
        self._router_timer_us: int | None = None
        self._epochs: dict[str, int] = {}
        self.workers: dict[str, SimWorker] = {}
        self.given_up: dict[str, SimWorker] = {}
        """Lives that count as lost and run on."""
        self.disks: dict[str, Disk] = {}
        """Files of every worker that has a disk tier; a crash does not touch what is whole."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._encoder = msgspec.msgpack.Encoder()
        for ordinal, worker_id in enumerate(plan.worker_ids):
            self._start(worker_id, ordinal)
        for arrival in plan.arrivals:
            self.timeline.at(arrival.at_us, partial(self.submit, arrival))
        for scheduled in plan.scheduled:
            self.timeline.at(scheduled.at_us, partial(self.strike, scheduled))
        self.timeline.after(_WATCH_US, self._watch)

    def model_of(self, ordinal: int) -> ModelInfo:
        """The model as a worker announces it: in its own blocks."""
        plan = self.plan
        block_size, pp_size = plan.block_sizes[ordinal], plan.pp_sizes[ordinal]
        layout = replace(self.model.layout, block_size=block_size, pp_size=pp_size)
        return replace(self.model, layout=layout)

    # -- observing -----------------------------------------------------------------------------

    def observe(self, tell: Callable[[Observer], None]) -> None:
        """Show something to every observer."""
        for observer in self.observers:
            tell(observer)

    def record(self, place: str, event: Event) -> None:
        """Book an event that a node is about to take."""
        self.num_events += 1
        self._hash.update(b"%d %s " % (self.timeline.now_us, place.encode()))
        self._hash.update(self._encoder.encode(event))

    @property
    def trace_hash(self) -> str:
        """Digest of everything that happened so far."""
        return self._hash.copy().hexdigest()

    def mark(self, name: str) -> None:
        """Count something that no node counts."""
        self._marks[name] += 1

    def marks(self) -> Counter[str]:
        """Named outcomes counted by the router and by every life of every worker."""
        total = self._marks + self.router.counters
        for worker in self.workers.values():
            total += worker.node.counters
        return total

    # -- clients -------------------------------------------------------------------------------

    def submit(self, arrival: Arrival) -> None:
        """A client sends its request now."""
        request_id = arrival.request.request_id
        self.deliveries[request_id] = []
        self.feed_router(events.Submitted(request=arrival.request))
        if arrival.cancel_after_us >= 0:
            reason = arrival.cancel_reason
            self.timeline.after(arrival.cancel_after_us, lambda: self.cancel(request_id, reason))

    def cancel(self, request_id: str, reason: str) -> None:
        """A client goes away, or the gateway has seen a stop string."""
        self.feed_router(events.Cancelled(request_id=request_id, reason=reason))

    def end_of(self, request_id: str) -> Finished | Failed | None:
        """How a request ended, if it has."""
        for delivery in self.deliveries.get(request_id, ()):
            if isinstance(delivery, Finished | Failed):
                return delivery
        return None

    @property
    def router_now_us(self) -> int:
        """What the router's clock shows."""
        return self._router_clock.local_us(self.timeline.now_us)

    # -- processes -----------------------------------------------------------------------------

    def _start(self, worker_id: str, ordinal: int) -> None:
        epoch = self._epochs[worker_id] = self._epochs.get(worker_id, 0) + 1
        worker = SimWorker(self, worker_id, ordinal, epoch)
        self.workers[worker_id] = worker
        worker.join()

    def crash(self, worker_id: str, noticed_after_us: int, down_us: int) -> None:
        """Kill a worker that lives; the supervisor notices and starts its next life."""
        worker = self.workers.pop(worker_id, None)
        if worker is None:
            return
        worker.crash()
        self._marks += worker.node.counters
        lost = events.WorkerLost(worker_id=worker_id, epoch=worker.epoch)
        self.timeline.after(noticed_after_us, lambda: self.feed_router(lost))
        self.timeline.after(
            noticed_after_us + down_us, lambda: self._start(worker_id, worker.ordinal)
        )

    def give_up(self, worker_id: str, runs_on_us: int, down_us: int) -> None:
        """Count a worker that lives as lost; its next life starts whether or not it has ended."""
        if worker_id in self.given_up or worker_id not in self.workers:
            return
        worker = self.given_up[worker_id] = self.workers.pop(worker_id)
        self.disks[worker_id] = Disk()  # the next life is on another host
        lost = events.WorkerLost(worker_id=worker_id, epoch=worker.epoch, ended=False)
        self.feed_router(lost)
        self.timeline.after(down_us, lambda: self._start(worker_id, worker.ordinal))
        self.timeline.after(runs_on_us, lambda: self.crash_given_up(worker))

    def crash_given_up(self, worker: SimWorker) -> None:
        """The process of a life that was given up ends, and that is known."""
        if not worker.alive:
            return
        del self.given_up[worker.worker_id]
        worker.crash()
        self._marks += worker.node.counters
        self.feed_router(events.WorkerLost(worker_id=worker.worker_id, epoch=worker.epoch))

    def is_neighbour_busy(self, worker: SimWorker) -> bool:
        """Whether any other engine of this machine computes now."""
        return any(other.engine.is_busy for other in self.workers.values() if other is not worker)

    def _watch(self) -> None:
        """The supervisor ends workers that live but do not answer."""
        for worker_id in self.router.fleet.unresponsive(self.router_now_us):
            if worker_id in self.workers and self.workers[worker_id].engine.hangs:
                self.mark("hung_workers")
            self.crash(worker_id, noticed_after_us=1_000, down_us=100_000)
        self.timeline.after(_WATCH_US, self._watch)

    # -- faults --------------------------------------------------------------------------------

    def strike(self, fault: Scheduled) -> None:
        """A scheduled fault happens, unless everything has healed."""
        if self.network.healed:
            return
        match fault:
            case Crash():
                self.crash(fault.worker_id, fault.noticed_after_us, fault.down_us)
            case Stall(worker_id=worker_id) if worker_id in self.workers:
                self.workers[worker_id].stall(fault.duration_us)
            case Slow(worker_id=worker_id) if worker_id in self.workers:
                worker = self.workers[worker_id]
                worker.slowness = fault.factor
                self.timeline.after(fault.duration_us, lambda: setattr(worker, "slowness", 1))
            case Partition() | Clog():
                self.network.block(fault)
            case Clear():
                self.feed_router(events.CacheCleared())
            case Revoke():
                self.feed_router(events.RoutesRevoked(reason="drill"))
            case Hang(worker_id=worker_id) if worker_id in self.workers:
                self.workers[worker_id].engine.hangs = True
            case GiveUp():
                self.give_up(fault.worker_id, fault.runs_on_us, fault.down_us)
            case Echo(worker_id=worker_id):
                if self.network.echo(worker_id) < self._epochs[worker_id]:
                    self.mark("stale_hellos")

    def heal(self) -> None:
        """No fault happens any more, and what stood still goes on."""
        self.network.heal()
        for worker in list(self.given_up.values()):
            self.crash_given_up(worker)
        for worker in list(self.workers.values()):
            worker.heal()

    # -- messages ------------------------------------------------------------------------------

    def _life_of(self, process: str) -> int:
        """The epoch that messages are addressed to; 0 where it does not matter."""
        worker = self.workers.get(process) or self.given_up.get(process)
        return worker.epoch if worker is not None and not self.plan.late_delivery else 0

    def _deliver(self, receiver: str, envelope: Envelope) -> None:
        if receiver == ROUTER:
            self.feed_router(events.Received(envelope=envelope))
            return
        worker = self.workers.get(receiver) or self.given_up.get(receiver)
        if worker is not None:
            worker.receive(envelope)

    def feed_router(self, event: Event) -> None:
        """Give the router an event and perform what it asks for."""
        self.record(ROUTER, event)
        asked = self.router.handle(event, self.router_now_us)
        for effect in asked:
            match effect:
                case effects.Send(to=to, message=message):
                    envelope = Envelope(sender_id=ROUTER, sender_epoch=0, message=message)
                    self.network.send(to, envelope)
                case effects.Deliver(request_id=request_id, delivery=delivery):
                    self.deliveries[request_id].append(delivery)
                case effects.Trace():
                    pass  # observers see it among the effects
                case _:
                    raise AssertionError(f"the router host cannot {type(effect).__name__}")
        self.observe(lambda o: o.handled_by_router(self, event, asked))
        self._arm_router()

    def _arm_router(self) -> None:
        deadline_us = self.router.next_deadline()
        if deadline_us is None:
            return
        due_us = max(self.timeline.now_us + 1, self._router_clock.world_us(deadline_us))
        if self._router_timer_us is None or due_us < self._router_timer_us:
            self._router_timer_us = due_us
            self.timeline.at(due_us, lambda: self._ring_router(due_us))

    def _ring_router(self, due_us: int) -> None:
        if self._router_timer_us == due_us:
            self._router_timer_us = None
            self.feed_router(events.Tick())


def _keys(plan: Plan) -> tuple[Signer, Verifier]:
    """What the router signs with, and what every worker trusts; equal plans have equal keys."""
    if not plan.asymmetric:
        return KEY, KEY
    secret = hashlib.blake2b(b"%d" % plan.seed, digest_size=32).digest()
    private = Ed25519Signer(ROUTER, secret)
    return private, Ed25519Verifier(ROUTER, private.public_key)
