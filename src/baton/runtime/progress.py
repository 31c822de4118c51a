"""What a long start shows: bars on a terminal, one line per stage elsewhere."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn


class StartProgress:
    """One row for the model and one for each worker."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.fields[row]:<12}"),
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._stages: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the rows as they are; calling it again does nothing."""
        self._bars.stop()

    def update(self, row: str, stage: str, fraction: float) -> None:
        """A row reached `fraction` of `stage`."""
        if self._bars.disable:
            if stage and self._stages.get(row) != stage:
                self._console.print(f"{row}: {stage}", highlight=False)
            self._stages[row] = stage
            return
        if row not in self._tasks:
            self._tasks[row] = self._bars.add_task(stage, total=1.0, row=row)
        self._bars.update(self._tasks[row], description=stage, completed=fraction)
