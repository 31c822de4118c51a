"""The router's view of its workers: who lives under which epoch, and what is outstanding there."""

from collections.abc import Iterator

import msgspec

from baton.core.ids import Role
from baton.core.layout import KVLayout, ModelInfo
from baton.core.reblock import BRIDGED, transform_defect
from baton.core.snapshot import LoadSnapshot, Rates, WorkerInfo
from baton.nodes.account import Account
from baton.policy.routing import WorkerLoad

_LINK_FOR_US = 100_000


class WorkerView:
    """One live worker. Outstanding work is the router's own account, exact between snapshots.

    A route asks for the load of every worker, so it is kept until something of it changes.
    """

    def __init__(self, info: WorkerInfo, now_us: int) -> None:
        self.info = info
        self.last_seen_us = now_us
        self.draining = False
        """It gets no new work, because it will be removed."""
        self.prefill_tokens = Account(self._forget_load)
        """Rows that each request routed here still has to have computed, as far as is known."""
        self.prefill_pairs = Account(self._forget_load)
        """Causal pairs of those rows."""
        self.decode_blocks = Account(self._forget_load)
        self._snapshot: LoadSnapshot | None = None
        self._full = False
        self._load: WorkerLoad | None = None

    @property
    def snapshot(self) -> LoadSnapshot | None:
        """The last heartbeat."""
        return self._snapshot

    @snapshot.setter
    def snapshot(self, snapshot: LoadSnapshot | None) -> None:
        """A newer one: what policies see of this worker is made anew."""
        self._snapshot = snapshot
        self._load = None

    @property
    def full(self) -> bool:
        """It denied a reservation; routes wait for its next snapshot or finished request."""
        return self._full

    @full.setter
    def full(self, full: bool) -> None:
        """It denied, or it may be asked again."""
        self._full = full
        self._load = None

    def _forget_load(self) -> None:
        self._load = None

    @property
    def pending_tokens(self) -> int:
        """Prompt tokens routed here whose prefill is not known to be over."""
        return self.prefill_tokens.total

    @property
    def rates(self) -> Rates:
        """What it has measured; all 0 before its first heartbeat."""
        return self._snapshot.rates if self._snapshot else Rates()

    def end_prefill(self, request_id: str) -> None:
        """This request's rows are computed, or will not be."""
        self.prefill_tokens.pop(request_id, None)
        self.prefill_pairs.pop(request_id, None)

    def load(self) -> WorkerLoad:
        """This worker as the routing policy sees it."""
        if self._load is None:
            self._load = self._measure()
        return self._load

    def _measure(self) -> WorkerLoad:
        quarantined = self.snapshot.quarantined_blocks if self.snapshot else 0
        taken = self.decode_blocks.total + quarantined
        rates = self.rates
        return WorkerLoad(
            worker_id=self.info.worker_id,
            role=self.info.role,
            pending_tokens=self.pending_tokens,
            pending_us=rates.prefill_us_per_token * self.prefill_tokens.total
            + rates.prefill_us_per_pair * self.prefill_pairs.total,
            active_requests=len(self.decode_blocks),
            headroom_blocks=self.info.num_blocks - taken,
            accepting=not self.full and len(self.decode_blocks) < self.info.max_num_seqs,
            running=self.snapshot.running if self.snapshot else 0,
            max_requests=self.info.max_num_seqs,
            rates=rates,
            tier_bytes_per_us=self._tier_bytes_per_us(),
        )

    def _tier_bytes_per_us(self) -> float:
        """The slowest measured way into memory: which tier holds a block is not asked here."""
        tiers = self.snapshot.tiers if self.snapshot else ()
        return min((tier.bytes_per_us for tier in tiers if tier.bytes_per_us), default=0.0)


class Fleet:
    """Live workers by id; a restart replaces the view and with it everything the old epoch had."""

    def __init__(self, timeout_us: int, batch_timeout_us: int) -> None:
        self._timeout_us = timeout_us
        self._batch_timeout_us = batch_timeout_us
        self._views: dict[str, WorkerView] = {}
        self._reference: WorkerInfo | None = None
        self._source_layout: KVLayout | None = None
        self._decode_layout: KVLayout | None = None
        self._are_measured = False
        """Everybody who prefills has said what that costs there."""
        self._link = Rates()
        self._link_until_us = 0
        self._over: dict[str, int] = {}
        """The last life of each worker that is known to be over: its late words join nobody."""
        self._ended: set[tuple[str, int]] = set()

    def __iter__(self) -> Iterator[WorkerView]:
        return iter(self._views.values())

    @property
    def model(self) -> ModelInfo | None:
        """The model that every worker here serves; None before the first one joined."""
        return self._reference.model if self._reference else None

    @property
    def source_layout(self) -> KVLayout | None:
        """In whose blocks prompts are named and found; those who prefill all have the same."""
        return self._source_layout or (self.model.layout if self.model else None)

    @property
    def decode_layout(self) -> KVLayout | None:
        """In whose blocks decode workers count; they all have the same."""
        return self._decode_layout or (self.model.layout if self.model else None)

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
            ("attention backend", mine.attention_backend, theirs.attention_backend),
            *_version_fields(dict(reference.versions), dict(info.versions)),
        ):
            if ours != got:
                return (
                    f"worker {info.worker_id} cannot be paired: its {name} is {got!r}, "
                    f"the deployment's is {ours!r} (set by {reference.worker_id})"
                )
        return ""

    def _layout_fields(self, info: WorkerInfo) -> list[tuple[str, object, object]]:
        """The first field of the K/V layout that no transform bridges, with both values; or none.

        Block sizes and pipeline stages may differ between prefill and decode workers, not among
        those of one role.
        """
        assert self._reference is not None
        ours, theirs = self._reference.model.layout, info.model.layout
        defect = transform_defect(theirs, ours)
        if defect:
            return [(f"K/V layout {defect}", getattr(ours, defect), getattr(theirs, defect))]
        alike = [view.info.model.layout for view in self if view.info.role is info.role]
        return [
            (f"K/V layout {name}", value, getattr(theirs, name))
            for name in BRIDGED
            for value in {getattr(layout, name) for layout in alike} - {getattr(theirs, name)}
        ]

    def join(self, info: WorkerInfo, now_us: int) -> None:
        """Add a worker, or its new life."""
        self._reference = self._reference or info
        self._views[info.worker_id] = WorkerView(info, now_us)
        self._are_measured = False
        if info.role is not Role.DECODE:
            self._source_layout = info.model.layout
        if info.role is not Role.PREFILL:
            self._decode_layout = info.model.layout

    def leave(self, worker_id: str, epoch: int) -> bool:
        """That life of a worker is over; False when it was not here, or a newer one is."""
        self._over[worker_id] = max(epoch, self._over.get(worker_id, 0))
        view = self.get(worker_id, epoch)
        if view is None:
            return False
        del self._views[worker_id]
        return True

    def end(self, worker_id: str, epoch: int) -> bool:
        """The process of that life is dead; False when that was known."""
        known = self.has_ended(worker_id, epoch)
        self._ended.add((worker_id, epoch))
        return not known

    def has_ended(self, worker_id: str, epoch: int) -> bool:
        """True for a life whose process is known to be dead, and not only given up."""
        return (worker_id, epoch) in self._ended

    def drain(self, worker_id: str, epoch: int) -> None:
        """No route chooses that life of a worker any more."""
        view = self.get(worker_id, epoch)
        if view is not None:
            view.draining = True

    def is_over(self, worker_id: str, epoch: int) -> bool:
        """True for a life that is known to have ended."""
        return epoch <= self._over.get(worker_id, 0)

    def get(self, worker_id: str, epoch: int | None = None) -> WorkerView | None:
        """The view of a worker, optionally only of that epoch."""
        view = self._views.get(worker_id)
        if view is None or epoch not in (None, view.info.epoch):
            return None
        return view

    def unresponsive(self, now_us: int) -> dict[str, str]:
        """Workers that live and cannot serve, and why: silent, or their engine does not return.

        Only their end makes what they hold safe to reclaim.
        """
        found = {}
        for view in self:
            batch_us = view.snapshot.batch_us if view.snapshot is not None else 0
            if now_us - view.last_seen_us > 2 * self._timeout_us:
                found[view.info.worker_id] = (
                    f"was silent for more than {2 * self._timeout_us / 1e6:g} s "
                    "(2 x router.worker_timeout_ms)"
                )
            elif batch_us > self._batch_timeout_us:
                found[view.info.worker_id] = (
                    f"computed one batch for more than {self._batch_timeout_us / 1e6:g} s "
                    "(router.batch_timeout_ms)"
                )
        return found

    def routable(self, now_us: int) -> list[WorkerLoad]:
        """Workers whose heartbeat is fresh and that will not be removed."""
        since_us = now_us - self._timeout_us  # every route asks, so no call for what is known
        views = self._views.values()
        loads = [
            view._load or view.load()
            for view in views
            if view.last_seen_us > since_us and not view.draining
        ]
        return loads if self._are_measured else self._estimated(loads)

    def _estimated(self, loads: list[WorkerLoad]) -> list[WorkerLoad]:
        """Who has not measured its prefill yet is priced as the others, not as free of charge."""
        unmeasured = [
            view
            for view in self
            if view.info.role is not Role.DECODE and not view.rates.prefill_us_per_token
        ]
        self._are_measured = not unmeasured
        mean = self.prefill_us_per_token()
        names = {view.info.worker_id for view in unmeasured} if mean else ()
        return [_priced(load, mean) if load.worker_id in names else load for load in loads]

    def missing(self, now_us: int) -> str:
        """Why no request can be served now, or "" when a pair (or a mixed worker) is ready."""
        roles = {load.role for load in self.routable(now_us)}
        if Role.MIXED in roles or {Role.PREFILL, Role.DECODE} <= roles:
            return ""
        absent = sorted({Role.PREFILL, Role.DECODE} - roles)
        return "no live worker for: " + ", ".join(absent)

    def prefill_us_per_token(self) -> float:
        """Mean measured prefill cost over the prefill-capable workers; 0 before any measurement."""
        return _mean([view.rates.prefill_us_per_token for view in self])

    def link(self, now_us: int) -> Rates:
        """Mean measured rate and overhead of the links, kept for a while: every route asks."""
        if now_us >= self._link_until_us or now_us < self._link_until_us - _LINK_FOR_US:
            self._link_until_us = now_us + _LINK_FOR_US
            rates = [view.rates for view in self]
            self._link = Rates(
                transfer_bytes_per_us=_mean([r.transfer_bytes_per_us for r in rates]),
                transfer_overhead_us=_mean([r.transfer_overhead_us for r in rates]),
            )
        return self._link


def _version_fields(
    ours: dict[str, str], theirs: dict[str, str]
) -> list[tuple[str, object, object]]:
    """Another release of what computes may round otherwise: hosts are set up apart."""
    names = dict.fromkeys((*ours, *theirs))
    return [(f"version of {name}", ours.get(name), theirs.get(name)) for name in names]


def _priced(load: WorkerLoad, prefill_us_per_token: float) -> WorkerLoad:
    rates = msgspec.structs.replace(load.rates, prefill_us_per_token=prefill_us_per_token)
    pending_us = prefill_us_per_token * load.pending_tokens
    return msgspec.structs.replace(load, rates=rates, pending_us=pending_us)


def _mean(values: list[float]) -> float:
    """Of those that were measured."""
    measured = [value for value in values if value]
    return sum(measured) / len(measured) if measured else 0.0
