"""The router's view of its workers: who lives under which epoch, and what is outstanding there."""

from collections.abc import Iterator

from baton.core.ids import Role
from baton.core.layout import KVLayout, ModelInfo
from baton.core.reblock import transform_defect
from baton.core.snapshot import LoadSnapshot, WorkerInfo
from baton.policy.routing import WorkerLoad


class WorkerView:
    """One live worker. Outstanding work is the router's own account, exact between snapshots."""

    def __init__(self, info: WorkerInfo, now_us: int) -> None:
        self.info = info
        self.last_seen_us = now_us
        self.snapshot: LoadSnapshot | None = None
        self.prefill_tokens: dict[str, int] = {}
        self.decode_blocks: dict[str, int] = {}
        self.full = False
        """It denied a reservation; routes wait for its next snapshot or finished request."""

    @property
    def pending_tokens(self) -> int:
        """Prompt tokens routed here whose prefill is not known to be over."""
        return sum(self.prefill_tokens.values())

    def load(self) -> WorkerLoad:
        """This worker as the routing policy sees it."""
        quarantined = self.snapshot.quarantined_blocks if self.snapshot else 0
        taken = sum(self.decode_blocks.values()) + quarantined
        return WorkerLoad(
            worker_id=self.info.worker_id,
            role=self.info.role,
            pending_tokens=self.pending_tokens,
            active_requests=len(self.decode_blocks),
            headroom_blocks=self.info.num_blocks - taken,
            accepting=not self.full and len(self.decode_blocks) < self.info.max_num_seqs,
        )


class Fleet:
    """Live workers by id; a restart replaces the view and with it everything the old epoch had."""

    def __init__(self, timeout_us: int, batch_timeout_us: int) -> None:
        self._timeout_us = timeout_us
        self._batch_timeout_us = batch_timeout_us
        self._views: dict[str, WorkerView] = {}
        self._reference: WorkerInfo | None = None
        self._over: dict[str, int] = {}
        """The last life of each worker that is known to be over: its late words join nobody."""

    def __iter__(self) -> Iterator[WorkerView]:
        return iter(self._views.values())

    @property
    def model(self) -> ModelInfo | None:
        """The model that every worker here serves; None before the first one joined."""
        return self._reference.model if self._reference else None

    @property
    def decode_layout(self) -> KVLayout | None:
        """In whose blocks decode workers count; they all have the same."""
        decodes = (v.info.model.layout for v in self if v.info.role is not Role.PREFILL)
        return next(decodes, self.model.layout if self.model else None)

    def largest_pool(self) -> int:
        """Blocks of the largest pool that can decode."""
        return max((v.info.num_blocks for v in self if v.info.role is not Role.PREFILL), default=0)

    def refusal(self, info: WorkerInfo) -> str:
        """Why this worker cannot join the others, by the name of what differs, or ""."""
        reference = self._reference
        if reference is None:
            return ""
        mine, theirs = reference.model, info.model
        for name, ours, got in (
            ("version", reference.version, info.version),
            ("model identity", mine.identity.digest, theirs.identity.digest),
            *self._layout_fields(info),
            ("dtype", mine.dtype, theirs.dtype),
            ("vocabulary size", mine.vocab_size, theirs.vocab_size),
            ("end-of-text tokens", mine.eos_token_ids, theirs.eos_token_ids),
            ("deterministic mode", mine.deterministic, theirs.deterministic),
        ):
            if ours != got:
                return (
                    f"worker {info.worker_id} cannot be paired: its {name} is {got!r}, "
                    f"the deployment's is {ours!r} (set by {reference.worker_id})"
                )
        return ""

    def _layout_fields(self, info: WorkerInfo) -> list[tuple[str, object, object]]:
        """The first field of the K/V layout that no transform bridges, with both values; or none.

        Block sizes may differ between prefill and decode workers, not among those of one role.
        """
        assert self._reference is not None
        ours, theirs = self._reference.model.layout, info.model.layout
        defect = transform_defect(theirs, ours)
        if defect:
            return [(f"K/V layout {defect}", getattr(ours, defect), getattr(theirs, defect))]
        alike = [view.info.model.layout for view in self if view.info.role is info.role]
        sizes = {layout.block_size for layout in alike} - {theirs.block_size}
        return [("K/V layout block_size", size, theirs.block_size) for size in sizes]

    def join(self, info: WorkerInfo, now_us: int) -> None:
        """Add a worker, or its new life."""
        self._reference = self._reference or info
        self._views[info.worker_id] = WorkerView(info, now_us)

    def leave(self, worker_id: str, epoch: int) -> bool:
        """That life of a worker is over; False when it was not here, or a newer one is."""
        self._over[worker_id] = max(epoch, self._over.get(worker_id, 0))
        view = self.get(worker_id, epoch)
        if view is None:
            return False
        del self._views[worker_id]
        return True

    def is_over(self, worker_id: str, epoch: int) -> bool:
        """True for a life that is known to have ended."""
        return epoch <= self._over.get(worker_id, 0)

    def get(self, worker_id: str, epoch: int | None = None) -> WorkerView | None:
        """The view of a worker, optionally only of that epoch."""
        view = self._views.get(worker_id)
        if view is None or epoch not in (None, view.info.epoch):
            return None
        return view

    def unresponsive(self, now_us: int) -> list[str]:
        """Workers that live and cannot serve: silent for long, or their engine does not return.

        Only their end makes what they hold safe to reclaim.
        """
        return [
            view.info.worker_id
            for view in self
            if now_us - view.last_seen_us > 2 * self._timeout_us
            or (view.snapshot is not None and view.snapshot.batch_us > self._batch_timeout_us)
        ]

    def routable(self, now_us: int) -> list[WorkerLoad]:
        """Workers whose heartbeat is fresh."""
        return [view.load() for view in self if now_us - view.last_seen_us < self._timeout_us]

    def missing(self, now_us: int) -> str:
        """Why no request can be served now, or "" when a pair (or a mixed worker) is ready."""
        roles = {load.role for load in self.routable(now_us)}
        if Role.MIXED in roles or {Role.PREFILL, Role.DECODE} <= roles:
            return ""
        absent = sorted({Role.PREFILL, Role.DECODE} - roles)
        return "no live worker for: " + ", ".join(absent)

    def prefill_us_per_token(self) -> float:
        """Mean measured prefill cost over the prefill-capable workers; 0 before any measurement."""
        rates = [
            view.snapshot.rates.prefill_us_per_token
            for view in self
            if view.snapshot and view.snapshot.rates.prefill_us_per_token
        ]
        return sum(rates) / len(rates) if rates else 0.0
