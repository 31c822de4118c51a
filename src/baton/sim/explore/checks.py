"""What must hold at a worker, judged from its effects and events, not from its own account."""

from typing import NamedTuple

from baton.core.events import ChunkDigested, Event, Received
from baton.core.messages import CreditReturn, SourceRelease
from baton.nodes.worker import Worker
from baton.protocol.source_copy import CopyState
from baton.protocol.transfer import TransferState
from baton.sim.explore.violation import Violation, require


class Opened(NamedTuple):
    """A reservation that was promised and is neither published nor declared quiet."""

    reservation_id: int
    transfer_id: str
    colocated: bool
    block_ids: tuple[int, ...]
    num_tokens: int
    num_chunks: int
    visible: tuple[int, ...] = ()
    authorized: bool = False


class Watch(NamedTuple):
    """History that the checks need; everything in it was seen at the node's border."""

    opened: tuple[Opened, ...] = ()
    published: tuple[tuple[str, int], ...] = ()
    """The highest published generation of each request."""
    inflight: tuple[tuple[int, int, int], ...] = ()
    """Moves without returned credit: reservation, chunk, bytes."""

    def reservation(self, reservation_id: int) -> Opened | None:
        """The open reservation of this id."""
        return next((o for o in self.opened if o.reservation_id == reservation_id), None)

    def replace(self, opened: Opened) -> "Watch":
        """With one reservation added or changed."""
        others = [o for o in self.opened if o.reservation_id != opened.reservation_id]
        return self._replace(opened=tuple(sorted([*others, opened])))

    def close(self, reservation_id: int) -> "Watch":
        """Without a reservation."""
        return self._replace(
            opened=tuple(o for o in self.opened if o.reservation_id != reservation_id)
        )

    def returned(self, reservation_id: int, chunk_ids: tuple[int, ...] | None = None) -> "Watch":
        """Credit of these chunks, or of all chunks of a reservation, is back."""
        kept = tuple(
            row
            for row in self.inflight
            if row[0] != reservation_id or (chunk_ids is not None and row[1] not in chunk_ids)
        )
        return self._replace(inflight=kept)


def watch_event(watch: Watch, event: Event) -> Watch:
    """What an event by itself proves: bytes are visible, credit is back, a copy may go."""
    if isinstance(event, ChunkDigested):
        opened = watch.reservation(event.reservation_id)
        if opened is not None and event.chunk_id not in opened.visible:
            visible = tuple(sorted((*opened.visible, event.chunk_id)))
            watch = watch.replace(opened._replace(visible=visible))
            watch = watch.returned(event.reservation_id, (event.chunk_id,))
    elif isinstance(event, Received):
        message = event.envelope.message
        if isinstance(message, CreditReturn):
            watch = watch.returned(message.fence.reservation_id, message.chunk_ids)
        elif isinstance(message, SourceRelease):
            watch = watch.returned(message.fence.reservation_id)
    return watch


def own_write(name: str, watch: Watch, reservation_id: int, blocks: tuple[int, ...]) -> None:
    """Bytes may land only in blocks that their reservation still owns."""
    opened = watch.reservation(reservation_id)
    require(
        opened is not None,
        f"bytes landed at {name} for reservation {reservation_id:#x}, which owns nothing there",
    )
    assert opened is not None
    require(
        opened.authorized,
        f"bytes landed at {name} for {opened.transfer_id} before its right was spent there",
    )
    require(
        set(blocks) <= set(opened.block_ids),
        f"bytes landed at {name} in blocks {blocks}; the grant is {opened.block_ids}",
    )


class WorkerFacts(NamedTuple):
    """What the model needs to know of a worker node."""

    deadline_us: int
    held: str
    worthless: tuple[int, ...]
    """Free and quarantined blocks: nobody may rely on what is in them."""
    known: dict[str, int]
    """The epoch of the peer as this worker knows it."""


def inspect(node: Worker) -> WorkerFacts:
    """Check a worker node by itself, once per fingerprint."""
    try:
        node.context.memory.pool.check()
    except AssertionError as error:
        raise Violation(f"{node.context.worker_id}: block pool {error}") from error
    _check_sum(node)
    _check_source(node)
    _check_destination(node)
    pool = node.context.memory.pool
    worthless = tuple(sorted({*pool._free, *pool._quarantined}))
    known = {peer.worker_id: peer.epoch for peer in node.context.peers.values()}
    return WorkerFacts(node.next_deadline(), _held(node), worthless, known)


def _check_sum(node: Worker) -> None:
    """Free, used, cached and quarantined are disjoint and are everything."""
    pool = node.context.memory.pool
    used = [block for block, count in enumerate(pool._references) if count]
    cached = pool.history.cold_first()
    kinds = [*pool._free, *used, *cached, *pool._quarantined]
    require(
        sorted(kinds) == list(range(pool.num_blocks)),
        f"{node.context.worker_id}: free {sorted(pool._free)} + used {used} + cached "
        f"{cached} + quarantined {sorted(pool._quarantined)} is not the pool",
    )


def _check_source(node: Worker) -> None:
    """A copy that was neither released nor quiesced keeps its blocks."""
    references = node.context.memory.pool._references
    for job in node.source.jobs.values():
        if job.transfer is None:
            continue
        live = job.transfer.state in (CopyState.COMPUTING, CopyState.HELD, CopyState.FENCING)
        require(live, f"{job.fence.transfer_id} is kept as {job.transfer.state}")
        pinned = all(references[block] for block in job.transfer.local_blocks)
        require(pinned, f"the source copy of {job.fence.transfer_id} lost its blocks")


def _check_destination(node: Worker) -> None:
    """A reservation holds its table; an aborting one keeps what was granted in quarantine."""
    pool = node.context.memory.pool
    for incoming in node.destination.incoming.values():
        transfer = incoming.transfer
        if transfer.state is TransferState.ABORTING:
            kept = set(transfer.grant.block_ids) <= pool._quarantined
        else:
            kept = all(pool._references[block] for block in transfer.block_table)
        require(kept, f"reservation of {incoming.fence.transfer_id} lost its blocks")
    for entry in node.directory._entries.values():
        sequence = node.decode.live.get(entry.transfer_id)
        if sequence is not None and sequence.block_table:
            kept = all(pool._references[block] for block in sequence.block_table)
            require(kept, f"the published entry of {entry.transfer_id} lost its blocks")


def _held(node: Worker) -> str:
    """What is not given back, or "": the leak check of a terminal state."""
    pool, queue = node.context.memory.pool, node.queue
    counts = {
        "used blocks": pool.num_used,
        "quarantined blocks": pool.num_quarantined,
        "source jobs": len(node.source.jobs),
        "reservations": len(node.destination.incoming),
        "live sequences": len(node.decode.live),
        "unacknowledged ends": len(node.decode.ended),
        "published entries": len(node.directory),
        "queued sequences": len(queue.waiting) + len(queue.running),
        "leases": len(node.source.leases) + len(node.destination.leases),
    }
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
