"""The progress bar of a run."""

import statistics
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from baton.bench.load.client import OnProgress
from baton.bench.load.progress import Progress
from baton.goodput.record import Outcome
from baton.workload.request import Workload


class Display:
    """One line for each run; it is drawn by a thread of its own, so counting stays cheap."""

    def __init__(self, console: Console) -> None:
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=4,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def watch(self, label: str, workload: Workload) -> OnProgress:
        """A line for the run that begins now."""
        total = len(workload.requests)
        task = self._bar.add_task(label or "requests", total=total, facts="")

        def tell(progress: Progress) -> None:
            self._bar.update(task, completed=progress.num_ended, facts=_facts(progress))

        return tell if not self._bar.disable else lambda progress: None


def _facts(progress: Progress) -> str:
    parts = [f"{progress.num_in_flight} in flight"]
    if failed := progress.outcomes[Outcome.FAILED]:
        parts.append(f"[red]{failed} failed[/]")
    if cancelled := progress.outcomes[Outcome.CANCELLED]:
        parts.append(f"{cancelled} cancelled")
    if progress.recent_ttft_us:
        parts.append(f"TTFT {statistics.median(progress.recent_ttft_us) / 1e3:.0f} ms")
    return ", ".join(parts)
