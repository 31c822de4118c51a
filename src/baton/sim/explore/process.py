"""A process of the model: numbered states, and every step computed once.

A node is deterministic and isolated, so (state, event, time) decides (state, output). The node
itself runs only when that triple is new; everything else is a look-up.
"""

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from baton.core.effects import Effect
from baton.core.events import Event
from baton.sim.explore.store import Nodes
from baton.sim.explore.violation import Violation, require

Node = TypeVar("Node")


class Kind(IntEnum):
    """What can happen to one process."""

    RECEIVE = 0
    ARRIVE = 1
    TICK = 2
    ENGINE = 3
    PLANE = 4
    LOST = 5
    CANCEL = 6


class Outcome(NamedTuple):
    """What a step leaves: the next state, messages by lane, and reservations declared quiet."""

    state: int
    sends: tuple[tuple[int, int], ...]
    quiet: tuple[int, ...] = ()


class Facts(Protocol):
    """What the model needs to know of any node."""

    @property
    def known(self) -> dict[str, int]:
        """The epochs of the workers that it holds for alive."""


class Process(ABC, Generic[Node]):
    """Memoised steps of one process; subclasses know its events and its effects."""

    def __init__(self, name: str, nodes: Nodes[Node], check_every: int) -> None:
        self.name = name
        self.nodes = nodes
        self.num_hits = 0
        self.num_checks = 0
        self._check_every = check_every
        self._memo: dict[tuple[int, Kind, int, int], Outcome] = {}

    @property
    def num_steps(self) -> int:
        """Steps that were computed by running the node."""
        return len(self._memo)

    def step(self, state: int, kind: Kind, argument: int, now_us: int) -> Outcome:
        """The outcome of one event in one state."""
        key = (state, kind, argument, now_us)
        found = self._memo.get(key)
        if found is None:
            node = self.nodes.thaw(self.node_of(state))
            found = self._memo[key] = self.run(state, kind, argument, now_us, node)
            return found
        self.num_hits += 1
        if self._check_every and self.num_hits % self._check_every == 0:
            self._check(key, found)
        return found

    def _check(self, key: tuple[int, Kind, int, int], expected: Outcome) -> None:
        """A node of equal fingerprint that came another way must do the very same."""
        other = self.nodes.thaw_other(self.node_of(key[0]))
        if other is None:
            return
        self.num_checks += 1
        got = self.run(*key, other)
        require(got == expected, f"{self.name}: equal fingerprints, unequal steps at {key}")

    def handle(self, node: Node, event: Event, now_us: int) -> list[Effect]:
        """Give an event to a node; an error inside it is a violation."""
        try:
            effects: list[Effect] = node.handle(event, now_us)  # type: ignore[attr-defined]
            return effects
        except Exception as error:
            text = f"{self.name} broke on {type(event).__name__}: {type(error).__name__} {error}"
            raise Violation(text) from error

    @abstractmethod
    def node_of(self, state: int) -> int:
        """The number of a state's node."""

    @abstractmethod
    def facts(self, state: int) -> Facts:
        """What is known of the node of a state."""

    @abstractmethod
    def run(self, state: int, kind: Kind, argument: int, now_us: int, node: Node) -> Outcome:
        """Compute one step by running the node."""
