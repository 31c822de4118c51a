"""When are two states of a node the same? A canonical value of everything that can matter.

The object graph is walked and every attribute counts, with its aliases, except what is named in
`EXCLUDED` and what the three canonical forms below drop. Each omission cannot change a later
decision or a later effect:

- counters, ledgers, peaks and measured rates are only reported; their one way out is the load
  snapshot, which no explored run sends (heartbeats lie beyond its time), and `retry_after_s`,
  a hint to the client that the effects are compared without;
- the clock reading is overwritten at the start of every event; a freshness stamp matters only
  after `worker_timeout_ms`, which lies beyond the explored time as well;
- batch numbers only pair a batch with its own end, and there is one batch at a time;
- a heap pops by order, so a free list is a set and a lease table is its live rows in order;
- generation floors are ordered only for their eviction beyond 65 536 requests;
- configuration, model and wiring are the same for every life of one worker.

The self-check of the search replays memoised steps from other representatives of a fingerprint.
"""

from collections import deque
from enum import Enum
from types import MethodType
from typing import Any

import msgspec

from baton.cache.blocks import BlockPool
from baton.core.machine import Machine, Table
from baton.core.work import Batch
from baton.protocol.directory import Directory
from baton.protocol.lease import LeaseTable

EXCLUDED: dict[str, frozenset[str]] = {
    "Worker": frozenset({"_meter", "_version"}),
    "WorkerContext": frozenset({"counters", "now_us", "model", "worker", "transfer"}),
    "RouterContext": frozenset(
        {"counters", "now_us", "config", "transfer", "finished_at", "lifetimes", "tenants"}
    ),
    "WorkerView": frozenset({"last_seen_us", "_load"}),
    "Account": frozenset({"_changed"}),
    "Fleet": frozenset({"_link", "_link_until_us"}),
    "RequestRecord": frozenset({"published_us", "prefill_end_us", "num_prefilled_tokens"}),
    "EngineQueue": frozenset({"_num_batches", "_limits"}),
    "DestinationTransfer": frozenset({"ledger", "arrived_nbytes", "layout", "identity", "plan"}),
    "SourceTransfer": frozenset({"layout", "plan"}),
    "CreditWindow": frozenset({"peak_nbytes"}),
    "CapabilityIssuer": frozenset({"_signer"}),
    "CapabilityGate": frozenset({"_verifier", "_max_ttl_us", "_max_nonces"}),
    "MemPool": frozenset({"layout", "_identity", "num_hits", "num_asked"}),
}
"""Attributes that cannot influence behaviour, by class."""

_ATOM, _BATCH, _TUPLE, _SET, _METHOD, _TABLE, _OBJECT = range(7)
_forms: dict[type, int] = {}
_attributes: dict[type, tuple[str, ...]] = {}


def fingerprint(node: object) -> tuple[object, ...]:
    """A hashable value; equal values mean equal answers to every event from now on."""
    return ("node", _Walk().value(node))


def _form(kind: type) -> int:
    """How values of a type are written down; the types of a walk are few, so it is remembered."""
    form = _OBJECT
    if issubclass(kind, Batch):
        form = _BATCH
    elif issubclass(kind, int | str | bytes | float | type(None) | Enum) or _is_frozen(kind):
        form = _ATOM
    elif issubclass(kind, tuple):
        form = _TUPLE
    elif issubclass(kind, frozenset | set):
        form = _SET
    elif issubclass(kind, MethodType):
        form = _METHOD
    elif issubclass(kind, Table):
        form = _TABLE
    _forms[kind] = form
    return form


def _is_frozen(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) and kind.__struct_config__.frozen


class _Walk:
    """One walk; objects are numbered in the order of their first visit, so aliases count."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def value(self, item: Any) -> object:
        kind = type(item)
        form = _forms.get(kind)
        if form is None:
            form = _form(kind)
        if form == _ATOM:
            return item
        if form == _OBJECT:
            number = self._numbers.get(id(item))
            if number is not None:
                return ("again", number)
            self._numbers[id(item)] = len(self._numbers)
            return self._object(item, kind)
        if form == _TUPLE:
            return tuple([self.value(part) for part in item])
        if form == _BATCH:
            return msgspec.structs.replace(item, batch_id=0)
        if form == _SET:
            return ("set", tuple(sorted(item)))
        return item.__name__ if form == _METHOD else item.name

    def _object(self, item: Any, kind: type) -> object:
        names = _attributes.get(kind)
        if names is not None:
            value = self.value
            return (kind.__name__, *[value(getattr(item, name)) for name in names])
        if issubclass(kind, list | deque):
            return ("list", *[self.value(part) for part in item])
        if issubclass(kind, dict):
            return ("dict", *[(key, self.value(part)) for key, part in item.items()])
        if issubclass(kind, Machine):
            return item.state
        if issubclass(kind, LeaseTable):
            return _leases(item)
        if issubclass(kind, Directory):
            return ("directory", self.value(item._entries), tuple(sorted(item._floors.items())))
        if issubclass(kind, BlockPool):
            return _pool(item)
        if not kind.__module__.startswith("baton."):
            raise TypeError(f"no canonical form for a {kind.__name__} inside a node")
        _learn(kind, item)
        return (kind.__name__, *[self.value(getattr(item, name)) for name in _attributes[kind]])


def _learn(kind: type, item: Any) -> None:
    """All attributes of a class but the excluded ones; constructors set every one of them."""
    found = vars(item) if hasattr(item, "__dict__") else getattr(kind, "__slots__", ())
    _attributes[kind] = tuple(sorted(set(found) - EXCLUDED.get(kind.__name__, frozenset())))


def _leases(table: LeaseTable[Any]) -> object:
    live = [(at, row, key) for at, row, key in sorted(table._heap) if table._expiry.get(key) == at]
    return ("leases", tuple((at, key) for at, _, key in live))


def _pool(pool: BlockPool) -> object:
    return (
        "pool",
        tuple(sorted(pool._free)),
        tuple(pool._references),
        tuple(pool.history.hash_of(block) for block in range(pool.num_blocks)),
        tuple(pool.history.cold_first()),
        tuple(sorted(pool._quarantined)),
        tuple(sorted(pool._barred)),
    )
