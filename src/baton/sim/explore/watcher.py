"""Judges every effect of a worker against what was seen at its border before."""

from baton.core.effects import CancelIo, DigestChunk, MoveChunk
from baton.core.ids import Role
from baton.core.manifest import Grant
from baton.core.messages import (
    Aborted,
    Authorized,
    CreditReturn,
    Message,
    Published,
    Reserved,
    SourceRelease,
)
from baton.core.work import Batch
from baton.nodes.worker import Worker
from baton.sim.arithmetic import Truth
from baton.sim.explore.checks import Opened, Watch
from baton.sim.explore.memory import Geometry, Rows
from baton.sim.explore.violation import require

Orders = tuple[MoveChunk | DigestChunk | CancelIo, ...]
Tables = dict[int, tuple[int, ...]]


class Watcher:
    """The rules of one worker; it remembers nothing, the history is in the `Watch`."""

    def __init__(
        self,
        name: str,
        role: Role,
        geometry: Geometry,
        truths: dict[str, Truth],
        credit_nbytes: int,
    ) -> None:
        self._name = name
        self._role = role
        self._geometry = geometry
        self._truths = truths
        self._credit_nbytes = credit_nbytes

    def tables(self, node: Worker) -> Tables:
        """Block tables of the open reservations, as they are before an event."""
        return {
            incoming.fence.reservation_id: incoming.transfer.block_table
            for incoming in node.destination.incoming.values()
        }

    # -- engine and plane ----------------------------------------------------------------------

    def batch(self, watch: Watch, batch: Batch) -> None:
        """A decode worker computes published entries, and what it recomputes into a reservation."""
        if self._role is Role.PREFILL:
            return
        published = dict(watch.published)
        own = {opened.transfer_id for opened in watch.opened if opened.colocated}
        for item in batch.items:
            key = f"{item.request_id}.{item.generation}"
            require(
                published.get(item.request_id) == item.generation or key in own,
                f"{self._name} computes rows of {key}, which is not published",
            )

    def order(self, watch: Watch, order: MoveChunk | DigestChunk) -> Watch:
        """Bytes that are moved and not visible stay within the credit."""
        if not isinstance(order, MoveChunk):
            return watch
        row = (order.reservation_id, order.chunk.chunk_id, order.chunk.nbytes)
        require(row not in watch.inflight, f"{self._name} moves chunk {row[1]} twice")
        inflight = tuple(sorted((*watch.inflight, row)))
        nbytes = sum(row[2] for row in inflight if row[0] == order.reservation_id)
        require(
            nbytes <= self._credit_nbytes,
            f"{self._name} has {nbytes} bytes in flight with credit for {self._credit_nbytes}",
        )
        return watch._replace(inflight=inflight)

    # -- messages ------------------------------------------------------------------------------

    def send(
        self,
        watch: Watch,
        message: Message,
        rows: Rows,
        orders: Orders,
        batch: Batch | None,
        tables: Tables,
    ) -> tuple[Watch, tuple[int, ...]]:
        """The history after a message, and the reservation that it declares quiet."""
        match message:
            case Reserved():
                return self._reserved(watch, message), ()
            case Published():
                return self._published(watch, message, rows, tables), ()
            case Aborted():
                return self._aborted(watch, message, orders, batch)
            case Authorized(fence=fence):
                opened = watch.reservation(fence.reservation_id)
                if opened is not None:
                    watch = watch.replace(opened._replace(authorized=True))
            case CreditReturn(fence=fence, chunk_ids=chunk_ids):
                opened = watch.reservation(fence.reservation_id)
                visible = set(opened.visible) if opened is not None else set()
                early = sorted(set(chunk_ids) - visible)
                require(not early, f"credit of chunks {early} returned before they are visible")
            case SourceRelease(fence=fence):
                generation = dict(watch.published).get(fence.request_id, 0)
                require(
                    generation >= fence.generation,
                    f"the source copy of {fence.transfer_id} is released before publication",
                )
        return watch, ()

    def _reserved(self, watch: Watch, message: Reserved) -> Watch:
        grant = message.grant
        fence = grant.fence
        if watch.reservation(fence.reservation_id) is not None:
            return watch
        for other in watch.opened:
            shared = set(other.block_ids) & set(grant.block_ids)
            require(not shared, f"blocks {shared} are granted twice")
        opened = Opened(
            fence.reservation_id,
            fence.transfer_id,
            fence.colocated,
            grant.block_ids,
            grant.num_tokens,
            0 if fence.colocated else self._num_chunks(grant),
        )
        return watch.replace(opened)

    def _num_chunks(self, grant: Grant) -> int:
        """How many chunks cover the grant: layers and blocks, each rounded up."""
        geometry = grant.geometry
        by_layer = -(-self._geometry.num_layers // geometry.chunk_layers)
        return by_layer * -(-len(grant.block_ids) // geometry.chunk_blocks)

    def _published(self, watch: Watch, message: Published, rows: Rows, tables: Tables) -> Watch:
        fence = message.fence
        published = dict(watch.published)
        known = published.get(fence.request_id, 0)
        if known == fence.generation:
            return watch  # said again
        require(known < fence.generation, f"{fence.transfer_id} is published after {known}")
        opened = watch.reservation(fence.reservation_id)
        require(opened is not None, f"{fence.transfer_id} is published without a reservation")
        assert opened is not None
        require(
            opened.visible == tuple(range(opened.num_chunks)),
            f"{fence.transfer_id} is published with only chunks {opened.visible} visible",
        )
        truth = self._truths[fence.request_id].rows
        table = tables[fence.reservation_id]
        right = truth[:, : opened.num_tokens].tolist()
        got = self._geometry.read_all(rows, table, opened.num_tokens)
        for layer, (expected, found) in enumerate(zip(right, got, strict=True)):
            require(
                expected == found,
                f"{fence.transfer_id} is published with wrong rows in layer {layer}",
            )
        published[fence.request_id] = fence.generation
        watch = watch._replace(published=tuple(sorted(published.items())))
        return watch.close(fence.reservation_id)

    def _aborted(
        self, watch: Watch, message: Aborted, orders: Orders, batch: Batch | None
    ) -> tuple[Watch, tuple[int, ...]]:
        """Blocks go back when no order and no batch can write them any more."""
        opened = watch.reservation(message.fence.reservation_id)
        if opened is None:
            return watch, ()
        text = f"{opened.transfer_id} is aborted while"
        busy = [order for order in orders if order.reservation_id == opened.reservation_id]
        require(not busy, f"{text} the plane of {self._name} works on it")
        items = batch.items if batch is not None else ()
        keys = {f"{item.request_id}.{item.generation}" for item in items}
        require(opened.transfer_id not in keys, f"{text} the engine of {self._name} writes it")
        return watch.close(opened.reservation_id), (opened.reservation_id,)
