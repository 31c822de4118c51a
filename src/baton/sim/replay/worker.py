"""The production worker node over an engine and a data plane that only take time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baton.core import events
from baton.core.events import Event
from baton.core.ids import Role
from baton.core.messages import Envelope, Hello, Message
from baton.core.snapshot import Rates, WorkerInfo
from baton.nodes.context import ROUTER
from baton.nodes.worker import Worker
from baton.policy.phase_cost import PrefillRows
from baton.sim.orders import perform
from baton.sim.replay.costs import Costs, of_role
from baton.sim.replay.engine import ReplayEngine
from baton.sim.replay.plane import ReplayPlane
from baton.sim.replay.tiers import ReplayTiers

if TYPE_CHECKING:
    from baton.sim.replay.deployment import ReplayDeployment

EPOCH = 1
_WARM_UP_ROWS = 64


class ReplayWorker:
    """One worker; nothing fails here, so there is one life and every word arrives."""

    def __init__(
        self, deployment: ReplayDeployment, worker_id: str, ordinal: int, role: Role
    ) -> None:
        setup, profile = deployment.setup, of_role(deployment.profile, role)
        self._deployment = deployment
        self._timeline = deployment.timeline
        self.worker_id, self._role = worker_id, role
        self._model = setup.model(profile, role)
        self._num_blocks = setup.pool_blocks(profile, role)
        self._timer_us: int | None = None
        num_layers = self._model.layout.num_layers
        self.engine = ReplayEngine(profile, self._timeline, num_layers, self.feed)
        self.plane = ReplayPlane(
            worker_id, deployment.transfer_cost, self._timeline, self.feed, deployment.arrive
        )
        block_nbytes = self._model.layout.bytes_per_block
        self.tiers = ReplayTiers(setup.tier_speeds, block_nbytes, self._timeline, self.feed)
        self.node = Worker(
            worker_id=worker_id,
            ordinal=ordinal,
            epoch=EPOCH,
            role=role,
            model=self._model,
            num_blocks=self._num_blocks,
            num_host_blocks=setup.cache.host_nbytes // block_nbytes,
            num_disk_blocks=setup.cache.disk_nbytes // block_nbytes,
            worker=setup.worker,
            cache=setup.cache,
            transfer=setup.transfer,
            heartbeat_ms=setup.router.heartbeat_ms,
            verifier=deployment.key,
            rates=_rates(profile),
        )

    def join(self) -> None:
        """Say hello to the router, and start the heartbeat."""
        setup = self._deployment.setup
        info = WorkerInfo(
            worker_id=self.worker_id,
            epoch=EPOCH,
            role=self._role,
            pid=0,
            version="replayed",
            endpoint="",
            model=self._model,
            num_blocks=self._num_blocks,
            max_num_seqs=setup.worker.max_admitted,
            region=b"",
        )
        self._send(ROUTER, Hello(info=info))
        self.feed(events.Tick())

    def feed(self, event: Event) -> None:
        """Give the node an event and perform what it asks for."""
        for effect in self.node.handle(event, self._timeline.now_us):
            perform(effect, self._send, self.engine, self.plane, self.tiers)
        self._arm()

    def _send(self, to: str, message: Message) -> None:
        envelope = Envelope(sender_id=self.worker_id, sender_epoch=EPOCH, message=message)
        self._deployment.send(to, envelope)

    def _arm(self) -> None:
        due_us = max(self._timeline.now_us + 1, self.node.next_deadline())
        if self._timer_us is None or due_us < self._timer_us:
            self._timer_us = due_us
            self._timeline.at(due_us, lambda: self._ring(due_us))

    def _ring(self, due_us: int) -> None:
        if self._timer_us != due_us:
            return
        self._timer_us = None
        if self.node.next_deadline() <= self._timeline.now_us:
            self.feed(events.Tick())
        else:
            self._arm()


def _rates(profile: Costs) -> Rates:
    """What a real host measures of itself before it serves."""
    warm_us = profile.step_us([PrefillRows(num_rows=_WARM_UP_ROWS)], [])
    return Rates(
        prefill_us_per_token=warm_us / _WARM_UP_ROWS,
        transfer_bytes_per_us=profile.transfer.bytes_per_us,
        transfer_overhead_us=profile.transfer.operation_us,
    )
