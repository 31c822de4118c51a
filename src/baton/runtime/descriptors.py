"""File descriptors of one process: as many as the system grants, and a reserve for its peers.

ZeroMQ aborts a process that cannot accept a peer on a Unix socket for want of a descriptor. A few
are therefore held back. When there are no others they are let go, so that peers still get in, and
a gateway turns new clients away until there are enough again.
"""

import asyncio
import contextlib
import os
import resource

from baton.runtime.notice import notice

_NUM_RESERVED = 24
_NUM_WANTED = 65_536
_EVERY_S = 0.05
_REFILL_S = 0.5
_MARGIN = 16
"""So many beside the reserve must be free before it is filled, so that it does not come and go."""


def raise_descriptor_limit() -> None:
    """Take the hard limit where the soft one is lower, up to what serving could ever use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _NUM_WANTED if hard == resource.RLIM_INFINITY else min(hard, _NUM_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class DescriptorReserve:
    """Held descriptors, looked after on the event loop until `close`."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._held: list[int] = []
        self._loop = asyncio.get_running_loop()
        self._refill_s = 0.0
        self._fill()
        self._timer = self._loop.call_later(_EVERY_S, self._check)

    @property
    def is_short(self) -> bool:
        """Whether the reserve is in use: nothing that can wait should open anything now."""
        return not self._held

    def close(self) -> None:
        """Give the reserve back."""
        self._timer.cancel()
        self._release()

    def _check(self) -> None:
        self._timer = self._loop.call_later(_EVERY_S, self._check)
        if self._held:
            try:
                os.close(os.dup(self._held[0]))
            except OSError:
                self._release()
                self._refill_s = self._loop.time() + _REFILL_S
                notice(self._place, "no file descriptor is free; raise `ulimit -n`")
        elif self._loop.time() >= self._refill_s:
            self._refill_s = self._loop.time() + _REFILL_S
            self._fill()

    def _fill(self) -> None:
        try:
            self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            while len(self._held) < _NUM_RESERVED + _MARGIN:
                self._held.append(os.dup(self._held[0]))
            while len(self._held) > _NUM_RESERVED:
                os.close(self._held.pop())
        except OSError:
            self._release()

    def _release(self) -> None:
        for handle in self._held:
            os.close(handle)
        self._held.clear()
