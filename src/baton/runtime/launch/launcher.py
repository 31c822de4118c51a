"""What a supervisor needs of whatever starts its workers. When to start one is not decided here."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from baton.runtime.spec import WorkerSpec


class LifeLost(Exception):
    """A life of which nothing is heard any more: its keeper or its node has gone."""


class Life(Protocol):
    """One worker process, from its start to its end."""

    def lines(self) -> AsyncIterator[bytes]:
        """What it reports, until it closes its output.

        Raises LifeLost when nobody can tell any more.
        """
        ...

    async def wait(self) -> int:
        """Its exit code, negative for a signal. Raises LifeLost when nobody can tell any more."""
        ...

    async def prove_end(self) -> bool:
        """After LifeLost: wait until the process is known to be dead.

        False when no proof came in its time; that it was not heard of is none.
        """
        ...

    def stop(self) -> None:
        """Let it end: its standard input is closed."""
        ...

    def kill(self) -> None:
        """End it at once. `lines` and `wait` return soon, whatever has become of its node."""
        ...


class Site(Protocol):
    """A place that is taken for the next life of one worker; nothing runs there yet."""

    @property
    def host(self) -> str:
        """The address at which its peers reach it."""
        ...

    @property
    def cores(self) -> tuple[int, ...]:
        """What it is pinned to there; empty: nothing."""
        ...

    @property
    def model_path(self) -> Path:
        """Of the prepared model, there."""
        ...

    @property
    def public_key(self) -> bytes:
        """Of the pair for control over tcp, whose other half the life is given; b"" over ipc."""
        ...

    async def start(self, spec: WorkerSpec) -> Life:
        """Start the life that `spec` describes. Raises OSError or LifeLost where it cannot."""
        ...

    def leave(self) -> None:
        """Give the place up without a start."""
        ...


class Launcher(Protocol):
    """Starts lives of workers somewhere."""

    async def take_site(self, ordinal: int) -> Site:
        """A place for the next life of the worker with this number in start order.

        Raises ConfigError where there can be none, OSError or LifeLost where there is none now.
        """
        ...

    def sweep(self) -> None:
        """Remove what the dead left on this host."""
        ...
