"""A short chaos run: faults happen, and every answer is equal or a typed error."""

import io
import os

import pytest
from rich.console import Console

from baton.bench.chaos.command import make_kinds, run_chaos
from baton.bench.chaos.kinds import ABOUT, Kind
from baton.bench.chaos.progress import Progress
from baton.config import load_config
from baton.errors import ConfigError

KINDS = frozenset(
    {
        Kind.KILL_DECODE,
        Kind.REVOKE,
        Kind.CANCEL_STORM,
        Kind.LEAVE_EARLY,
        Kind.LEAVE_MID,
        Kind.FLIP,
        Kind.DROP,
        Kind.DUPLICATE,
        Kind.DELAY,
        Kind.DISK_FULL,
    }
)
BY_CHANCE = {Kind.LEAVE_EARLY, Kind.LEAVE_MID, Kind.FLIP}
"""On a busy machine a short run may pass without one of these, but not without all of them."""


def minutes() -> float:
    """Five seconds on an idle machine, and up to four times as long where others want its cores."""
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return 0.08 * min(4.0, max(1.0, busy))


@pytest.mark.slow
async def test_a_few_seconds_of_faults_change_no_answer():
    said = io.StringIO()
    result = await run_chaos(
        load_config(None, ["model.name=tiny"]),
        minutes=minutes(),
        seed=3,
        kinds=KINDS,
        pairs=1,
        progress=Progress(Console(file=said)),
    )
    # How late an answer of /health is says as much of the machine; that it is 200 is ours.
    assert [text for text in result.violations if "/health was 200" not in text] == []
    (part,) = result.parts
    assert set(part.faults) >= KINDS - BY_CHANCE and BY_CHANCE & set(part.faults)
    assert part.ends["equal"] >= 1
    assert part.recoveries and part.num_health >= 1 and part.num_ready >= 1
    assert part.counters["finished"] > part.ends["equal"]
    # Every flipped byte was found by its checksum: none went into an answer, none was overlooked.
    assert (part.counters.get("validation_failures", 0) > 0) or Kind.FLIP not in part.faults
    assert part.num_loads > 0, "prompts that come again come from the tiers"
    stages = said.getvalue().splitlines()
    for stage in ("references", "part 1 of 1", "injecting", "healing", "judged"):
        assert [line for line in stages if stage in line], stage
    assert len(stages) < 12, "without a terminal there is a line per stage, not one per fault"


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(ConfigError, match="earthquake") as caught:
        make_kinds(["kill-decode", "earthquake"])
    assert str(caught.value).endswith(f"use one of {', '.join(str(kind) for kind in ABOUT)}")
    assert make_kinds([]) == frozenset(Kind)
