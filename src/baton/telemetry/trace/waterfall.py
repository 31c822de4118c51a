"""One request as a waterfall for a terminal: a line for each phase and each kind of work."""

from collections.abc import Iterator

from baton.telemetry.trace.bound import explain, ms
from baton.telemetry.trace.story import Story
from baton.telemetry.trace.work import Activity

COLUMNS = 60
_FULL, _HAIR = "█", "▏"


def waterfall(story: Story, columns: int = COLUMNS) -> list[str]:
    """The sentence, then its bars on one time axis of so many columns."""
    lines = [story.request_id, f"  {explain(story)}"]
    if story.tiling is None or not story.tiling.total_us:
        return lines
    start_us, total_us = story.tiling.start_us, story.tiling.total_us
    for phase, from_us, until_us in story.tiling.spans():
        bar = _bar(from_us - start_us, until_us - start_us, total_us, columns)
        lines.append(f"  {phase:<12}{bar} {ms(until_us - from_us)}")
    lines += _hidden(story, start_us, total_us, columns)
    return lines


def _hidden(story: Story, start_us: int, total_us: int, columns: int) -> Iterator[str]:
    """Moves and read-backs beside the compute: what of the transfer nobody waited for."""
    for activity in (Activity.NETWORK, Activity.SETTLE):
        mine = [one for one in story.work.intervals if one.activity is activity]
        if not mine:
            continue
        cells = [" "] * columns
        for one in mine:
            bar = _bar(one.start_us - start_us, one.end_us - start_us, total_us, columns)
            cells = [new if new != " " else old for new, old in zip(bar, cells, strict=True)]
        busy_us = sum(one.duration_us for one in mine)
        text = "".join(cells).replace(_FULL, "░")
        yield f"  ~ {activity:<10}{text} {ms(busy_us)} in {len(mine)}"
    if story.mode == "disaggregated" and not story.has_exposed:
        why = story.handoff_gap or "this connector reports neither"
        yield f"    transfer and publication are not observed: {why}"
    elif story.work.intervals and story.mode == "disaggregated":
        hidden, work = story.work.overlap_us, story.work
        yield (
            f"    work {ms(work.work_us)}, wall {ms(work.wall_us)}, overlap {ms(hidden)}, "
            f"exposed {ms(work.exposed_us)}, {work.num_retries} retries; "
            f"{story.ledger.logical_nbytes} B logical, {story.ledger.physical_nbytes} B physical"
        )


def _bar(from_us: int, until_us: int, total_us: int, columns: int) -> str:
    """A bar on the axis; what is too short for a column still shows as a hair."""
    first = min(columns - 1, max(0, from_us * columns // total_us))
    last = min(columns, max(0, until_us * columns // total_us))
    bar = _FULL * (last - first) if last > first else _HAIR
    return (" " * first + bar).ljust(columns)[:columns]
