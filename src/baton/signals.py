"""A long command that is asked to end: it hears of it once, and its children end with it."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ASKING = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1


class Interrupt:
    """Whether this process was asked to end, and by which signal."""

    def __init__(self) -> None:
        self.number = 0

    def __bool__(self) -> bool:
        return self.number != 0

    @property
    def exit_code(self) -> int:
        """What a shell expects of a command that a signal has ended."""
        return 128 + self.number


@contextmanager
def interrupts(on_first: Callable[[], None]) -> Iterator[Interrupt]:
    """Inside, the first SIGINT or SIGTERM is told to `on_first`; the second ends the hard way."""
    asked = Interrupt()

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if not asked:
            asked.number = number
            on_first()
            return
        restore()
        signal.raise_signal(number)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, handle) for number in _ASKING}
    try:
        yield asked
    finally:
        restore()


def end_with_parent(parent_pid: int) -> None:
    """For a child without anything to clean up: the parent alone decides when it ends.

    Ctrl-C reaches every process of a terminal, and the parent brings its children to their end;
    a parent that is killed cannot, so the kernel does.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent_pid:  # it died before the kernel was told
        os._exit(1)
