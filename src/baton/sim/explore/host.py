"""A worker's side of the model: its node, its memory, its engine, its data plane."""

from typing import NamedTuple

from baton.core.effects import CancelIo, DigestChunk, Effect, MoveChunk, RunBatch, Send
from baton.core.events import (
    BatchDone,
    ChunkArrived,
    ChunkDigested,
    ChunkMoved,
    Event,
    IoQuiesced,
    LayerReady,
    Received,
    Tick,
)
from baton.core.messages import Envelope
from baton.core.work import Batch, BatchResult, Sampled
from baton.nodes.worker import Worker
from baton.sim.arithmetic import Truth
from baton.sim.explore.checks import Watch, WorkerFacts, inspect, own_write, watch_event
from baton.sim.explore.memory import Geometry, Rows, sum_of
from baton.sim.explore.process import Kind, Outcome, Process
from baton.sim.explore.reduction import require_answer
from baton.sim.explore.setup import FAR_MS, NAMES, NUM_BLOCKS, PREFILL, ROLES, Setup
from baton.sim.explore.store import Nodes, Numbered
from baton.sim.explore.watcher import Watcher
from baton.sim.explore.wires import LANE_OF, Wires

Order = MoveChunk | DigestChunk | CancelIo


class HostState(NamedTuple):
    """A worker at one moment. The first order of the plane is under way."""

    epoch: int
    node: int
    rows: Rows
    batch: Batch | None
    stage: int
    plane: tuple[Order, ...]
    watch: Watch


class Moved(NamedTuple):
    """How a move ended, and for a read what arrived."""

    error: str
    checksum: int
    data: Rows


class Host(Process[Worker]):
    """Runs a worker node; what the engine and the plane do, it does to the memory."""

    def __init__(
        self, side: int, setup: Setup, wires: Wires, truths: dict[str, Truth], check_every: int
    ) -> None:
        super().__init__(NAMES[side], Nodes(inspect, keep_others=check_every > 0), check_every)
        self._side = side
        self._setup = setup
        self._wires = wires
        layout = setup.model.layout
        self.geometry = Geometry(layout.num_layers, NUM_BLOCKS, layout.block_size)
        self._watcher = Watcher(
            NAMES[side], ROLES[side], self.geometry, truths, setup.transfer.credit_nbytes
        )
        self.states: Numbered[HostState] = Numbered()
        self.moves: Numbered[Moved] = Numbered()
        self._fresh: dict[tuple[int, int], int] = {}

    def fresh(self, epoch: int, now_us: int) -> int:
        """The number of a new life's first state."""
        found = self._fresh.get((epoch, now_us))
        if found is None:
            node = self.nodes.freeze(self._setup.worker(self._side, epoch, now_us))
            born = HostState(epoch, node, self.geometry.empty, None, 0, (), Watch())
            found = self._fresh[epoch, now_us] = self.states.number(born)
        return found

    def node_of(self, state: int) -> int:
        return self.states.values[state].node

    def facts(self, state: int) -> WorkerFacts:
        """What is known of the node of a state."""
        found: WorkerFacts = self.nodes.facts[self.node_of(state)]
        return found

    def epoch(self, state: int) -> int:
        """Which life of the worker this is."""
        return self.states.values[state].epoch

    def deadline_us(self, state: int) -> int | None:
        """When this worker wants a tick; None while it is idle."""
        deadline_us = self.facts(state).deadline_us
        return None if deadline_us >= FAR_MS else deadline_us

    # -- memory seen from outside --------------------------------------------------------------

    def head(self, state: int) -> Order:
        """The order that is under way."""
        return self.states.values[state].plane[0]

    def read(self, state: int, layers: range, blocks: tuple[int, ...]) -> Rows:
        """A chunk as it is in this memory now."""
        return self.geometry.take(self.states.values[state].rows, layers, blocks)

    def write(self, state: int, order: MoveChunk, data: Rows) -> int:
        """The state after a peer's write landed here."""
        found = self.states.values[state]
        own_write(self.name, found.watch, order.reservation_id, order.remote_blocks)
        rows = self._land(found, order.remote_blocks, order, data)
        return self.states.number(found._replace(rows=rows))

    def _land(
        self, found: HostState, blocks: tuple[int, ...], order: MoveChunk, data: Rows
    ) -> Rows:
        rows = self.geometry.land(found.rows, layers_of(order), blocks, data)
        return self.geometry.scrub(rows, self.nodes.facts[found.node].worthless)

    # -- steps ---------------------------------------------------------------------------------

    def run(self, state: int, kind: Kind, argument: int, now_us: int, node: Worker) -> Outcome:
        found = self.states.values[state]
        event, found = self._event(found, kind, argument, node)
        watch = watch_event(found.watch, event)
        tables = self._watcher.tables(node)
        effects = self.handle(node, event, now_us)
        found, sends, quiet = self._perform(found._replace(watch=watch), effects, tables)
        number = self.nodes.freeze(node)
        rows = self.geometry.scrub(found.rows, self.nodes.facts[number].worthless)
        following = found._replace(node=number, rows=rows)
        outcome = Outcome(self.states.number(following), sends, quiet)
        if self._side == PREFILL:
            require_answer(event, outcome)
        return outcome

    def _event(
        self, found: HostState, kind: Kind, argument: int, node: Worker
    ) -> tuple[Event, HostState]:
        if kind is Kind.TICK:
            return Tick(), found
        if kind is Kind.RECEIVE:
            item = self._wires.carried.values[argument]
            assert isinstance(item, Envelope)
            return Received(envelope=item), found
        if kind is Kind.ARRIVE:
            item = self._wires.carried.values[argument]
            assert isinstance(item, ChunkArrived)
            return item, found
        if kind is Kind.ENGINE:
            return self._engine(found, node)
        return self._plane(found, argument)

    def _engine(self, found: HostState, node: Worker) -> tuple[Event, HostState]:
        """One layer of a batch that reports layers, or its end."""
        batch, geometry = found.batch, self.geometry
        assert batch is not None and node.queue.batch is not None
        batch_id = node.queue.batch.batch_id
        if batch.report_layers and found.stage < geometry.num_layers:
            layer = found.stage
            rows = geometry.compute(found.rows, batch, range(layer, layer + 1))
            event = LayerReady(batch_id=batch_id, layer=layer)
            return event, found._replace(rows=rows, stage=layer + 1)
        rows = found.rows
        if not batch.report_layers:
            rows = geometry.compute(rows, batch, range(geometry.num_layers))
        sampled = tuple(
            Sampled(
                request_id=item.request_id,
                generation=item.generation,
                token_id=geometry.draw(rows, item),
            )
            for item in batch.items
            if item.sample
        )
        result = BatchResult(batch_id=batch_id, sampled=sampled)
        return BatchDone(result=result), found._replace(rows=rows, batch=None, stage=0)

    def _plane(self, found: HostState, argument: int) -> tuple[Event, HostState]:
        """The order that was under way ends."""
        order, rest = found.plane[0], found.plane[1:]
        if isinstance(order, CancelIo):
            return IoQuiesced(reservation_id=order.reservation_id), found._replace(plane=rest)
        if isinstance(order, DigestChunk):
            data = self.geometry.take(found.rows, layers_of(order), order.local_blocks)
            event: Event = ChunkDigested(
                reservation_id=order.reservation_id,
                chunk_id=order.chunk.chunk_id,
                checksum=sum_of(data),
            )
            return event, found._replace(plane=rest)
        moved, rows = self.moves.values[argument], found.rows
        if not order.write and not moved.error:
            own_write(self.name, found.watch, order.reservation_id, order.local_blocks)
            rows = self._land(found, order.local_blocks, order, moved.data)
        event = ChunkMoved(
            reservation_id=order.reservation_id,
            chunk_id=order.chunk.chunk_id,
            nbytes=order.chunk.nbytes,
            checksum=moved.checksum,
            error=moved.error,
        )
        return event, found._replace(rows=rows, plane=rest)

    def _perform(
        self, found: HostState, effects: list[Effect], tables: dict[int, tuple[int, ...]]
    ) -> tuple[HostState, tuple[tuple[int, int], ...], tuple[int, ...]]:
        sends: list[tuple[int, int]] = []
        quiet: list[int] = []
        for effect in effects:
            if isinstance(effect, RunBatch):
                self._watcher.batch(found.watch, effect.batch)
                assert found.batch is None
                found = found._replace(batch=_unnumbered(effect.batch), stage=0)
            elif isinstance(effect, MoveChunk | DigestChunk):
                watch = self._watcher.order(found.watch, effect)
                found = found._replace(plane=(*found.plane, effect), watch=watch)
            elif isinstance(effect, CancelIo):
                watch = found.watch.returned(effect.reservation_id)
                found = found._replace(plane=_cancelled(found.plane, effect), watch=watch)
            elif isinstance(effect, Send):
                watch, ended = self._watcher.send(
                    found.watch, effect.message, found.rows, found.plane, found.batch, tables
                )
                found = found._replace(watch=watch)
                quiet += ended
                envelope = Envelope(
                    sender_id=self.name, sender_epoch=found.epoch, message=effect.message
                )
                sends.append((LANE_OF[self.name, effect.to], self._wires.number(envelope)))
        return found, tuple(sends), tuple(quiet)


def layers_of(order: MoveChunk | DigestChunk) -> range:
    """The layers of an order's chunk."""
    return range(order.chunk.layer_start, order.chunk.layer_start + order.chunk.num_layers)


def _cancelled(plane: tuple[Order, ...], order: CancelIo) -> tuple[Order, ...]:
    """Queued orders of the reservation go; the one under way cannot be taken back."""
    kept = [o for o in plane[1:] if o.reservation_id != order.reservation_id]
    return (*plane[:1], *kept, order)


def _unnumbered(batch: Batch) -> Batch:
    return Batch(batch_id=0, items=batch.items, report_layers=batch.report_layers)
