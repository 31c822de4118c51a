"""Router and workers in virtual time, without faults, bytes or traces: a lean simulated host."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from baton.core import effects, events
from baton.core.events import ChunkArrived, Event
from baton.core.ids import Purpose, Role
from baton.core.messages import Envelope, Reserved
from baton.nodes.context import ROUTER
from baton.nodes.router import Router
from baton.protocol.signing import HmacKey
from baton.sim.replay.client import ReplayClient, ReplayCounts
from baton.sim.replay.costs import Costs, of_role
from baton.sim.replay.setup import ReplaySetup
from baton.sim.replay.worker import ReplayWorker
from baton.sim.timeline import Timeline


class ReplayDeployment:
    """Composes the production nodes; messages take a constant time and keep their order."""

    def __init__(self, setup: ReplaySetup, profile: Costs) -> None:
        self.setup, self.profile = setup, profile
        self.timeline = Timeline()
        self.model = setup.model(profile)
        self.key = HmacKey(ROUTER, b"a replayed deployment's one key")
        decode = of_role(profile, Role.DECODE).transfer
        self.transfer_cost = msgspec.structs.replace(
            profile.transfer,
            checksum=setup.transfer.checksum,
            bytes_per_us=min(profile.transfer.bytes_per_us, decode.bytes_per_us),
        )
        self.router = Router(setup.router, setup.transfer, setup.cache, signer=self.key)
        self._router_timer_us: int | None = None
        self._clients: dict[str, ReplayClient] = {}
        self.num_open = 0
        """Requests that have no end yet."""
        self.decisions: Counter[str] = Counter()
        """Routes by the reason that the router gave."""
        self._purposes: dict[int, Purpose] = {}
        self.workers = {
            worker_id: ReplayWorker(self, worker_id, ordinal, role)
            for ordinal, (worker_id, role) in enumerate(
                zip(setup.worker_ids, setup.roles, strict=True)
            )
        }
        engines = [worker.engine for worker in self.workers.values()]
        for engine in engines:
            if setup.shares_memory:
                engine.neighbours = [other for other in engines if other is not engine]
        for worker in self.workers.values():
            worker.join()

    # -- messages ------------------------------------------------------------------------------

    def send(self, to: str, envelope: Envelope) -> None:
        """Put a message on its way."""
        event = events.Received(envelope=envelope)
        if isinstance(envelope.message, Reserved):
            grant = envelope.message.grant
            self._purposes[grant.fence.reservation_id] = grant.purpose
        if to == ROUTER:
            self.timeline.after(self.setup.delays.control_us, lambda: self.feed_router(event))
        elif to in self.workers:
            worker = self.workers[to]
            self.timeline.after(self.setup.delays.control_us, lambda: worker.feed(event))

    def arrive(self, peer_id: str, event: ChunkArrived) -> None:
        """A write is in a peer's memory."""
        self.workers[peer_id].feed(event)

    def feed_router(self, event: Event) -> None:
        """Give the router an event and perform what it asks for."""
        for effect in self.router.handle(event, self.timeline.now_us):
            match effect:
                case effects.Send(to=to, message=message):
                    envelope = Envelope(sender_id=ROUTER, sender_epoch=0, message=message)
                    self.send(to, envelope)
                case effects.Deliver(request_id=request_id, delivery=delivery):
                    at_us = self.timeline.now_us + self.setup.delays.gateway_out_us
                    client = self._clients[request_id]
                    client.on_delivery(delivery, at_us)
                    self.num_open -= client.is_over
                case effects.Trace(name="routed", data=data):
                    self.decisions[str(data.get("reason", "") or data["mode"])] += 1
                case effects.Trace():
                    pass
                case _:
                    raise AssertionError(f"the router host cannot {type(effect).__name__}")
        self._arm_router()

    def _arm_router(self) -> None:
        deadline_us = self.router.next_deadline()
        if deadline_us is None:
            return
        due_us = max(self.timeline.now_us + 1, deadline_us)
        if self._router_timer_us is None or due_us < self._router_timer_us:
            self._router_timer_us = due_us
            self.timeline.at(due_us, lambda: self._ring_router(due_us))

    def _ring_router(self, due_us: int) -> None:
        if self._router_timer_us == due_us:
            self._router_timer_us = None
            self.feed_router(events.Tick())

    # -- clients -------------------------------------------------------------------------------

    def submit(self, client: ReplayClient) -> None:
        """A client sends its request now; it reaches the router behind the gateway."""
        self.num_open += 1
        request = client.request()
        arrive_us = self.setup.delays.gateway_in_us
        if request is None:
            client.refuse(self.timeline.now_us + arrive_us)
            self.num_open -= 1
            return
        self._clients[client.request_id] = client
        event = events.Submitted(request=request)
        self.timeline.after(arrive_us, lambda: self.feed_router(event))

    def run_until(self, end_us: int) -> None:
        """Everything up to a world time."""
        self.timeline.run_until(end_us)

    def run_out(self, num_open: int = 0) -> None:
        """Go on until no more than `num_open` requests are without their end."""
        while self.num_open > num_open:
            assert self.timeline.step(), "heartbeats never end"

    def counts(self, clients: Sequence[ReplayClient], duration_us: int) -> ReplayCounts:
        """What happened so far, in a workload that took `duration_us`."""
        counters: Counter[str] = Counter(self.router.counters)
        moved: Counter[str] = Counter()
        for worker in self.workers.values():
            counters.update(worker.node.counters)
            for reservation_id, nbytes in worker.plane.moved.items():
                moved[str(self._purposes[reservation_id])] += nbytes
        return ReplayCounts(
            num_steps={name: worker.engine.num_steps for name, worker in self.workers.items()},
            busy_us={name: worker.engine.busy_us for name, worker in self.workers.items()},
            moved_nbytes=moved.total(),
            moved_nbytes_for=dict(sorted(moved.items())),
            decisions=dict(sorted(self.decisions.items())),
            num_cached_tokens=tuple(client.num_cached_tokens for client in clients),
            duration_us=duration_us,
            num_actions=self.timeline.num_steps,
            counters=dict(sorted(counters.items())),
        )
