"""A short chaos run: faults happen, and every answer is equal or a typed error."""

import pytest

from baton.bench.chaos.command import make_kinds, run_chaos
from baton.bench.chaos.kinds import Kind
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


@pytest.mark.slow
async def test_a_few_seconds_of_faults_change_no_answer():
    said: list[str] = []
    result = await run_chaos(
        load_config(None, ["model.name=tiny"]),
        minutes=0.08,
        seed=3,
        kinds=KINDS,
        pairs=1,
        tell=said.append,
    )
    assert result.violations == []
    (part,) = result.parts
    # On a busy machine a few seconds may pass without one of these, but not without all of them.
    by_chance = {Kind.LEAVE_EARLY, Kind.LEAVE_MID, Kind.FLIP}
    assert KINDS - by_chance <= set(part.faults) and by_chance & set(part.faults)
    assert part.ends["equal"] > 10
    assert part.recoveries and part.num_health > 10 and part.num_ready > 10
    assert part.counters["finished"] > part.ends["equal"]
    # Every flipped byte was found by its checksum: none went into an answer, none was overlooked.
    assert (part.counters.get("validation_failures", 0) > 0) or Kind.FLIP not in part.faults
    assert any("faults for" in text for text in said)


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(ConfigError, match="earthquake"):
        make_kinds(["kill-decode", "earthquake"])
    assert make_kinds([]) == frozenset(Kind)
