"""Values by number: a state is a few integers, and a node is kept once per fingerprint."""

import io
import pickle
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from baton.core.machine import Table
from baton.protocol.signing import HmacKey
from baton.sim.explore.fingerprint import fingerprint

Value = TypeVar("Value", bound=Hashable)
Node = TypeVar("Node")


class Numbered(Generic[Value]):
    """Equal values get the same number, in the order of their first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}
        self.values: list[Value] = []

    def number(self, value: Value) -> int:
        """The number of a value."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def __len__(self) -> int:
        return len(self.values)


class Lanes:
    """First-in-first-out queues of numbers, themselves numbered; the empty one is 0."""

    def __init__(self) -> None:
        self._lanes: Numbered[tuple[int, ...]] = Numbered()
        self._lanes.number(())
        self._pushed: dict[tuple[int, int], int] = {}
        self._popped: dict[int, tuple[int, int]] = {}

    def push(self, lane: int, item: int) -> int:
        """The lane with one more item at its end."""
        found = self._pushed.get((lane, item))
        if found is None:
            found = self._lanes.number((*self._lanes.values[lane], item))
            self._pushed[lane, item] = found
        return found

    def pop(self, lane: int) -> tuple[int, int]:
        """The first item and the lane without it."""
        found = self._popped.get(lane)
        if found is None:
            items = self._lanes.values[lane]
            found = self._popped[lane] = (items[0], self._lanes.number(items[1:]))
        return found

    def items(self, lane: int) -> tuple[int, ...]:
        """Everything in a lane, first to last."""
        return self._lanes.values[lane]


class Nodes(Generic[Node]):
    """One pickled representative per fingerprint; immutable values inside it are shared.

    `inspect` is asked once per fingerprint and its answer is kept beside the node.
    """

    def __init__(self, inspect: Callable[[Node], Any], *, keep_others: bool = False) -> None:
        self._inspect = inspect
        self._keep_others = keep_others
        self._prints: Numbered[tuple[object, ...]] = Numbered()
        self._pickles: list[bytes] = []
        self._others: dict[int, bytes] = {}
        self._shared: Numbered[Any] = Numbered()
        self.facts: list[Any] = []

    def __len__(self) -> int:
        return len(self._pickles)

    @property
    def fingerprints(self) -> frozenset[tuple[object, ...]]:
        """Every fingerprint that was met."""
        return frozenset(self._prints.values)

    def freeze(self, node: Node) -> int:
        """The number of this node's fingerprint."""
        number = self._prints.number(fingerprint(node))
        if number == len(self._pickles):
            self._pickles.append(self._pickle(node))
            self.facts.append(self._inspect(node))
        elif self._keep_others:
            pickled = self._pickle(node)
            if pickled != self._pickles[number]:
                self._others[number] = pickled
        return number

    def thaw(self, number: int) -> Node:
        """A fresh copy of the representative."""
        return self._unpickle(self._pickles[number])

    def thaw_other(self, number: int) -> Node | None:
        """Another node of the same fingerprint that was reached on another way, if one was."""
        pickled = self._others.get(number)
        return None if pickled is None else self._unpickle(pickled)

    def _pickle(self, node: Node) -> bytes:
        buffer = io.BytesIO()
        _Pickler(buffer, self._shared).dump(node)
        return buffer.getvalue()

    def _unpickle(self, pickled: bytes) -> Node:
        node: Node = _Unpickler(io.BytesIO(pickled), self._shared).load()
        return node


class _Pickler(pickle.Pickler):
    """Leaves frozen structs, transition tables and the key out: they are shared by number."""

    def __init__(self, file: io.BytesIO, shared: Numbered[Any]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def persistent_id(self, item: Any) -> int | None:
        if _is_shared(type(item)):
            return self._shared.number(item)
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: Numbered[Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, number: int) -> Any:
        return self._shared.values[number]


_shared_kinds: dict[type, bool] = {}


def _is_shared(kind: type) -> bool:
    found = _shared_kinds.get(kind)
    if found is None:
        frozen = issubclass(kind, msgspec.Struct) and kind.__struct_config__.frozen
        found = _shared_kinds[kind] = frozen or issubclass(kind, Table | HmacKey)
    return found
