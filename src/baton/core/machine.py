"""A state machine is one enum of states, one of inputs, and one table (in one file each)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from baton.errors import LocalProtocolError

State = TypeVar("State", bound=StrEnum)
Input = TypeVar("Input", bound=StrEnum)


class IllegalTransition(LocalProtocolError):
    """An input that the table does not allow in this state; nothing was changed."""


class Table(Generic[State, Input]):
    """An immutable transition table; `next` is its only decision.

    Terminal states are those without outgoing transitions. A pair that is absent is illegal.
    """

    def __init__(
        self, name: str, initial: State, rows: Mapping[tuple[State, Input], State]
    ) -> None:
        self.name = name
        self.initial = initial
        self.rows = dict(rows)
        self.states: tuple[State, ...] = tuple(type(initial))
        self.inputs: tuple[Input, ...] = tuple(type(next(iter(self.rows))[1]))
        sources = {state for state, _ in self.rows}
        self.terminal = frozenset(state for state in self.states if state not in sources)

    def next(self, state: State, given: Input) -> State:
        """Return the state after `given`, or raise IllegalTransition."""
        try:
            return self.rows[state, given]
        except KeyError:
            raise IllegalTransition(f"{self.name}: {given} is not allowed in {state}") from None

    def allows(self, state: State, given: Input) -> bool:
        """True when `given` has a row in `state`."""
        return (state, given) in self.rows

    def mermaid(self) -> str:
        """The table as a Mermaid state diagram, for docs/protocol.md."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    {a} --> {b}: {given}" for (a, given), b in self.rows.items()]
        lines += [f"    {state} --> [*]" for state in self.states if state in self.terminal]
        return "\n".join(lines)


class Machine(Generic[State, Input]):
    """A current state that only its table can change."""

    __slots__ = ("state", "table")

    def __init__(self, table: Table[State, Input]) -> None:
        self.table = table
        self.state = table.initial

    def feed(self, given: Input) -> State:
        """Apply `given`; an illegal input raises before anything changes."""
        self.state = self.table.next(self.state, given)
        return self.state

    @property
    def ended(self) -> bool:
        """True in a terminal state."""
        return self.state in self.table.terminal
