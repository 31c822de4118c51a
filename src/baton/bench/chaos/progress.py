"""What a long run says while it runs."""

import time

from rich.console import Console
from rich.status import Status


class Progress:
    """A line for every stage, and on a terminal a status that also shows the faults."""

    def __init__(self, console: Console, name: str = "chaos") -> None:
        self._console = console
        self._started_s = time.monotonic()
        self.status = Status(name, console=console, spinner="dots")

    def stage(self, text: str) -> None:
        """Something begins or is over: worth a line, with the time since the start."""
        elapsed_s = time.monotonic() - self._started_s
        self._console.print(
            f"{elapsed_s:4.0f} s  {text}", markup=False, highlight=False, soft_wrap=True
        )
        self.status.update(text)

    def fault(self, text: str) -> None:
        """A fault has happened: worth a glance."""
        self.status.update(text)
