"""Stop strings: found across token boundaries, and never shown to the client in part."""

from functools import lru_cache


@lru_cache(maxsize=256)
def _failure_table(pattern: str) -> tuple[int, ...]:
    """For each prefix length, the length of its longest proper border (Knuth-Morris-Pratt)."""
    table = [0] * (len(pattern) + 1)
    border = 0
    for position in range(1, len(pattern)):
        while border and pattern[position] != pattern[border]:
            border = table[border]
        if pattern[position] == pattern[border]:
            border += 1
        table[position + 1] = border
    return tuple(table)


class StopMatcher:
    """Passes text through until a stop string is complete; holds back a possible beginning.

    The first stop string to become complete wins, the longest one if several end together. That
    makes the result independent of how the text was cut into tokens.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._tables = [_failure_table(stop) for stop in stops]
        self._states = [0] * len(stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Take new text; return what may be shown now. Sets `matched` at the first full match."""
        assert self.matched is None, "text after the stop string was matched"
        num_held = len(self._held)
        buffer = self._held + text
        for position, char in enumerate(text):
            matched = self._step(char)
            if matched:
                self.matched = matched
                self._held = ""
                return buffer[: num_held + position + 1 - len(matched)]
        keep = max(self._states)
        self._held = buffer[len(buffer) - keep :]
        return buffer[: len(buffer) - keep]

    def flush(self) -> str:
        """The text still held back, once it is certain that no more text follows."""
        held, self._held = self._held, ""
        return held

    def _step(self, char: str) -> str:
        """Advance every automaton by one character; return the longest completed stop string."""
        matched = ""
        states = self._states
        for index, stop in enumerate(self._stops):
            state = states[index]
            while state and stop[state] != char:
                state = self._tables[index][state]
            if stop[state] == char:
                state += 1
                if state == len(stop):
                    if state > len(matched):
                        matched = stop
                    state = self._tables[index][state]
            states[index] = state
        return matched
