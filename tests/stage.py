"""A simulated deployment whose messages can be lost one by one; every checker watches it."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from baton.config import TransferConfig
from baton.core.delivery import Failed, Finished, Started, Tokens
from baton.core.effects import Effect, Trace
from baton.core.events import Event, Received
from baton.core.ids import Role
from baton.core.messages import (
    CacheChanges,
    CacheHoldings,
    CacheReplay,
    Envelope,
    Hello,
    Load,
    Message,
    Renew,
)
from baton.core.request import Request, SamplingParams
from baton.nodes.context import ROUTER
from baton.sim.arithmetic import Truth
from baton.sim.checks import all_checkers
from baton.sim.checks.leaks import leftovers
from baton.sim.draw import draw_hardware
from baton.sim.faults import ChunkFault, EngineFault
from baton.sim.observer import Observer
from baton.sim.plan import Arrival, Plan
from baton.sim.scene import calm_plan
from baton.sim.worker import SimWorker
from baton.sim.world import World

QUICK = {"lease": 1000, "retry": 50}
"""Options under which repairs take little virtual time."""
MODES = {"push": {"direction": "push"}, "pull": {"direction": "pull"}, "colocated": {"mixed": 1}}
Loses = Callable[[int, str, str, Message], bool]
"""Judges a message by its number, sender, receiver and kind. Chatter has the number -1."""
_CHATTER = (Load, Renew, CacheChanges, CacheReplay, CacheHoldings)
_LIMIT_US = 200_000_000


def uneven_plan(*roles: str, seed: int = 0, **changes: Any) -> Plan:
    """Chunks of two blocks of one layer, credit for two of them, and a pace drawn from `seed`.

    Nothing goes wrong by itself; another seed orders what is concurrent in another way.
    """
    transfer = {"chunk_nbytes": 64, "credit_nbytes": 128, **changes.pop("transfer", {})}
    return Plan(
        seed=seed,
        roles=tuple(Role(role) for role in roles or ("prefill", "decode")),
        transfer=TransferConfig(**transfer),
        hardware=draw_hardware(Random(seed)),
        replayed=True,
        **changes,
    )


class _Recorder(Observer):
    """Keeps what nodes trace: when, where, what."""

    def __init__(self, traces: list[tuple[int, str, Trace]]) -> None:
        self._traces = traces

    def handled_by_router(self, world: World, event: Event, effects: Sequence[Effect]) -> None:
        self._keep(world, ROUTER, effects)

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        self._keep(worker.world, worker.worker_id, effects)

    def _keep(self, world: World, place: str, effects: Sequence[Effect]) -> None:
        now_us = world.timeline.now_us
        self._traces += [(now_us, place, e) for e in effects if isinstance(e, Trace)]


def _loses_nothing(*_: object) -> bool:
    return False


class Stage:
    """Runs a world: the calm one of some options, or a given plan. `lose` judges every message."""

    def __init__(
        self,
        plan: Plan | None = None,
        *,
        lose: Loses = _loses_nothing,
        observers: Sequence[Observer] = (),
        **options: Any,
    ) -> None:
        assert plan is None or not options
        calm = {name: str(value) for name, value in {**QUICK, **options}.items()}
        self.traces: list[tuple[int, str, Trace]] = []
        self.world = World(
            plan or calm_plan(calm), [_Recorder(self.traces), *observers, *all_checkers()]
        )
        self.world.network.tamper = self._tamper
        self.sent: list[tuple[str, str, Message]] = []
        """Everything but chatter, in the order it was sent: sender, receiver, message."""
        self.lose = lose
        self.delay_us: Callable[[str, str, Message], tuple[int, ...]] = lambda *_: (0,)
        self.requests: dict[str, Request] = {}
        self.until(self._introduced)
        self.sent.clear()

    def _introduced(self) -> bool:
        workers = self.world.workers.values()
        known = all(len(w.node.context.peers) == len(workers) - 1 for w in workers)
        return known and not self.world.router.missing(self.world.router_now_us)

    def _tamper(self, receiver: str, envelope: Envelope) -> tuple[int, ...]:
        sender, message = envelope.sender_id, envelope.message
        if self.world.network.is_partitioned(sender, receiver):
            return ()
        if isinstance(message, Hello):
            return (0,)
        if isinstance(message, _CHATTER):
            return () if self.lose(-1, sender, receiver, message) else (0,)
        number = len(self.sent)
        self.sent.append((sender, receiver, message))
        if self.lose(number, sender, receiver, message):
            return ()
        return self.delay_us(sender, receiver, message)

    # -- driving -------------------------------------------------------------------------------

    def submit(
        self, request_id: str = "r", prompt: int | Sequence[int] = 10, **fields: Any
    ) -> Request:
        """A client asks; fields of its sampling parameters may stand among the others."""
        first = fields.pop("first", 0)
        tokens = range(first, first + prompt) if isinstance(prompt, int) else prompt
        sampling = {"max_tokens": 4, "seed": 3}
        for name in fields.keys() & set(SamplingParams.__struct_fields__):
            sampling[name] = fields.pop(name)
        request = Request(
            request_id=request_id,
            prompt_token_ids=tuple(tokens),
            sampling=SamplingParams(**sampling),
            **fields,
        )
        self.requests[request_id] = request
        self.world.submit(Arrival(at_us=0, request=request))
        return request

    def until(self, holds: Callable[[], Any]) -> None:
        timeline = self.world.timeline
        end_us = timeline.now_us + _LIMIT_US
        while not holds():
            assert timeline.now_us < end_us, f"still waiting: {leftovers(self.world)}"
            assert timeline.step()

    def run_for(self, duration_us: int) -> None:
        self.world.timeline.run_until(self.world.timeline.now_us + duration_us)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.world.timeline.step()

    def serve(self) -> None:
        """Every request ends, one way or another."""
        self.until(lambda: not self.world.router.records)

    def settle(self, quiet_us: int = 30_000_000) -> None:
        """Time passes for every lease and retry to end; then nobody holds anything any more."""
        self.lose = _loses_nothing
        self.run_for(quiet_us)
        assert leftovers(self.world) == []
        self.world.observe(lambda observer: observer.quiet(self.world))

    def finish(self) -> None:
        """Every request ends, everybody lets go of everything, and every checker agrees."""
        self.serve()
        self.lose = _loses_nothing
        self.until(lambda: not leftovers(self.world))
        self.world.observe(lambda observer: observer.quiet(self.world))

    def finish_right(self) -> None:
        """As `finish`, and every client has the whole true text."""
        self.finish()
        self.assert_all_right()

    # -- looking -------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.world.timeline.now_us

    def worker(self, start: str) -> SimWorker:
        return next(w for name, w in self.world.workers.items() if name.startswith(start))

    @property
    def source(self) -> SimWorker:
        return self.worker("mixed" if "mixed-0" in self.world.workers else "prefill")

    @property
    def destination(self) -> SimWorker:
        return self.worker("mixed" if "mixed-0" in self.world.workers else "decode")

    @property
    def mover(self) -> SimWorker:
        """The side whose data plane moves the bytes."""
        push = self.world.plan.transfer.direction == "push"
        return self.source if push else self.destination

    def tokens(self, request_id: str = "r") -> list[int]:
        deliveries = self.world.deliveries[request_id]
        return [t.token_id for d in deliveries if isinstance(d, Tokens) for t in d.tokens]

    def started(self, request_id: str = "r") -> Started:
        return next(d for d in self.world.deliveries[request_id] if isinstance(d, Started))

    def end(self, request_id: str = "r") -> Finished | Failed:
        found = self.world.end_of(request_id)
        assert found is not None, f"{request_id} has not ended"
        return found

    def truth(self, request_id: str = "r") -> list[int]:
        """What a single worker would answer."""
        return list(Truth(self.requests[request_id], self.world.model).outputs)

    def assert_right(self, request_id: str = "r") -> None:
        assert isinstance(self.end(request_id), Finished), self.end(request_id)
        assert self.tokens(request_id) == self.truth(request_id)

    def assert_all_right(self) -> None:
        for request_id in self.requests:
            self.assert_right(request_id)

    def traced(self, name: str, request_id: str = "") -> list[tuple[int, str, Trace]]:
        return [t for t in self.traces if t[2].name == name and request_id in ("", t[2].request_id)]

    def kinds(self, *kinds: type) -> list[Any]:
        """Messages of some kinds, in the order they were sent."""
        return [message for _, _, message in self.sent if isinstance(message, kinds)]

    def hand(self, worker_id: str, message: Message, sender_id: str = ROUTER) -> None:
        """A worker gets a message at this very moment, in the sender's first life."""
        self.world.workers[worker_id].receive(from_process(sender_id, message))

    def tell_router(self, worker_id: str, message: Message) -> None:
        """The router gets a word of a worker at this very moment."""
        envelope = from_process(worker_id, message)
        self.world.feed_router(Received(envelope=envelope))

    def as_router(self, worker_id: str, message: Message) -> None:
        """A word of the router that was on its way for a long time."""
        self.world.network.send(worker_id, from_process(ROUTER, message))

    # -- faults --------------------------------------------------------------------------------

    def hit_chunk(self, number: int, kind: str, delay_us: int = 1_000) -> None:
        """The `number`-th copy from now on, counted from 1, goes wrong."""
        worker = self.mover
        number += worker.plane.num_moves + worker.epoch * 1_000_000
        fault = ChunkFault(worker_id=worker.worker_id, number=number, kind=kind, delay_us=delay_us)
        self.world.listed["chunk", worker.worker_id, number] = fault

    def hit_batch(self, worker: SimWorker, number: int = 1) -> None:
        """The `number`-th batch from now on fails half-way."""
        number += worker.engine.num_batches + worker.epoch * 1_000_000
        fault = EngineFault(worker_id=worker.worker_id, number=number)
        self.world.listed["engine", worker.worker_id, number] = fault

    def crash(self, worker: SimWorker, down_us: int = 5_000) -> None:
        self.world.crash(worker.worker_id, noticed_after_us=500, down_us=down_us)


def from_process(sender_id: str, message: Message) -> Envelope:
    """As the router sends it, or as a worker sends it in its first life."""
    epoch = 0 if sender_id == ROUTER else 1
    return Envelope(sender_id=sender_id, sender_epoch=epoch, message=message)


def num_chunks(**options: Any) -> int:
    """Copies that one calm request of ten tokens makes."""
    stage = Stage(**options)
    stage.submit()
    stage.finish_right()
    return stage.mover.plane.num_moves


def num_messages(start: Callable[[Stage], Any], **options: Any) -> int:
    """Messages that a calm run sends from `start` on."""
    stage = Stage(**options)
    start(stage)
    before = len(stage.sent)
    stage.finish()
    return len(stage.sent) - before


def each_loss(start: Callable[[Stage], Any], **options: Any) -> Iterator[Stage]:
    """The same run again and again; each time another single message after `start` is lost."""
    for number in range(num_messages(start, **options)):
        stage = Stage(**options)
        start(stage)
        lost = len(stage.sent) + number
        stage.lose = lambda n, *_, lost=lost: n == lost
        yield stage
        assert len(stage.sent) > lost, "nothing was lost"
