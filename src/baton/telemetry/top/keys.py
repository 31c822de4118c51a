"""Keys of a terminal, read one at a time while something else is drawn."""

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

_MAX_NBYTES = 64
_REST_S = 0.05
"""How long the rest of an arrow may take after its escape."""


class Key(StrEnum):
    """What a key means here."""

    UP = "up"
    DOWN = "down"
    OPEN = "open"
    BACK = "back"
    PAUSE = "pause"
    QUIT = "quit"


_KEYS = {
    b"\x1b[A": Key.UP,
    b"\x1bOA": Key.UP,
    b"k": Key.UP,
    b"\x1b[B": Key.DOWN,
    b"\x1bOB": Key.DOWN,
    b"j": Key.DOWN,
    b"\x1b[C": Key.OPEN,
    b"\x1bOC": Key.OPEN,
    b"\r": Key.OPEN,
    b"\n": Key.OPEN,
    b"\x1b[D": Key.BACK,
    b"\x1bOD": Key.BACK,
    b"\x1b": Key.BACK,
    b"p": Key.PAUSE,
    b" ": Key.PAUSE,
    b"q": Key.QUIT,
    b"\x03": Key.QUIT,
}
_LONGEST_FIRST = sorted(_KEYS, key=len, reverse=True)


def keys_in(data: bytes) -> list[Key]:
    """The keys of some bytes that a terminal sent; what means nothing here is passed over."""
    found: list[Key] = []
    while data:
        name = next((one for one in _LONGEST_FIRST if data.startswith(one)), b"")
        if name:
            found.append(_KEYS[name])
        data = data[len(name) or 1 :]
    return found


class Keyboard:
    """The keys that were pressed, from a terminal that hands each over at once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def wait(self, timeout_s: float) -> list[Key]:
        """Keys as soon as there are any, or none after so long; the end of input is QUIT."""
        readable, _, _ = select.select([self._descriptor], [], [], timeout_s)
        if not readable:
            return []
        data = os.read(self._descriptor, _MAX_NBYTES)
        if data == b"\x1b" and select.select([self._descriptor], [], [], _REST_S)[0]:
            data += os.read(self._descriptor, _MAX_NBYTES)
        return keys_in(data) if data else [Key.QUIT]


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Standard input without echo and line editing, put back at the end."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
