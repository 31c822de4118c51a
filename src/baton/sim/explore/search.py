"""Breadth first over the global states, so that a counterexample is as short as can be."""

import time
from array import array
from collections import Counter
from collections.abc import Callable
from struct import Struct

import msgspec

from baton.sim.explore.model import STATE_SIZE, Model, State
from baton.sim.explore.violation import Violation


class Counterexample(msgspec.Struct, frozen=True, kw_only=True):
    """A broken promise and the actions that lead to it from the first state."""

    text: str
    actions: tuple[int, ...]


class Result(msgspec.Struct, kw_only=True):
    """What a search saw."""

    num_states: int = 0
    num_transitions: int = 0
    num_terminal: int = 0
    depth: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    exhausted: bool = False
    ends: dict[str, int] = {}
    """Terminal states by how the requests ended in them."""
    num_node_steps: int = 0
    num_lookups: int = 0
    num_checks: int = 0
    counterexample: Counterexample | None = None


class Search:
    """One search of one model; it keeps every state that it has seen, not a digest of it."""

    def __init__(
        self,
        model: Model,
        *,
        max_states: int,
        max_seconds: float,
        progress: Callable[[Result], None] | None = None,
    ) -> None:
        self.model = model
        self._max_states = max_states
        self._max_seconds = max_seconds
        self._progress = progress
        self._layout = Struct(f"<{STATE_SIZE}I")
        self._seen: set[bytes] = set()
        self._parents = array("I")
        self._actions = array("B")
        self._ends: Counter[str] = Counter()
        self.result = Result()

    def run(self) -> Result:
        """Explore until nothing is new, a promise is broken, or a limit is reached."""
        began, self._cpu_began = time.perf_counter(), time.process_time()
        try:
            frontier = [self._start()]
            while frontier and self._within(began):
                frontier = self._level(frontier, began)
                self.result.depth += bool(frontier)
                if self._progress is not None:
                    self._account(began)
                    self._progress(self.result)
            self.result.exhausted = not frontier and self.result.counterexample is None
        finally:
            self._account(began)
        return self.result

    def _start(self) -> bytes:
        state = self.model.initial()
        packed = self._layout.pack(*state)
        self._seen.add(packed)
        self._parents.append(0)
        self._actions.append(0)
        return packed

    def _within(self, began: float) -> bool:
        full = len(self._seen) >= self._max_states
        return not full and time.perf_counter() - began < self._max_seconds

    def _level(self, frontier: list[bytes], began: float) -> list[bytes]:
        """Expand every state of one depth; a limit leaves the level unfinished."""
        model, unpack, pack, seen = self.model, self._layout.unpack, self._layout.pack, self._seen
        found: list[bytes] = []
        first = len(seen) - len(frontier)
        for place, packed in enumerate(frontier):
            if place % 4096 == 0 and not self._within(began):
                return found + frontier[place:]
            state = unpack(packed)
            actions = model.actions(state)
            if not actions and not self._terminal(state, first + place):
                return []
            for action in actions:
                try:
                    following = pack(*model.apply(state, action))
                except Violation as error:
                    self._broken(str(error), first + place, action)
                    return []
                if following not in seen:
                    seen.add(following)
                    self._parents.append(first + place)
                    self._actions.append(action)
                    found.append(following)
            self.result.num_transitions += len(actions)
        return found

    def _terminal(self, state: State, index: int) -> bool:
        self.result.num_terminal += 1
        self._ends[", ".join(sorted(self.model.ends(state)))] += 1
        try:
            self.model.check_terminal(state)
        except Violation as error:
            self._broken(str(error), index, None)
            return False
        return True

    def _broken(self, text: str, index: int, action: int | None) -> None:
        actions = [] if action is None else [action]
        while index:
            actions.append(self._actions[index])
            index = self._parents[index]
        found = Counterexample(text=text, actions=tuple(reversed(actions)))
        self.result.counterexample = found

    def _account(self, began: float) -> None:
        result = self.result
        result.num_states = len(self._seen)
        result.seconds = time.perf_counter() - began
        result.cpu_seconds = time.process_time() - self._cpu_began
        result.ends = dict(self._ends)
        result.num_node_steps = sum(process.num_steps for process in self.model.processes)
        result.num_lookups = sum(process.num_hits for process in self.model.processes)
        result.num_checks = sum(process.num_checks for process in self.model.processes)
