"""What a run says about itself: reasons by name, counters apart, the same from run to run."""

import pytest

from baton.core.delivery import Failed
from baton.core.messages import Renew
from tests.stage import MODES, Stage

DIRECTIONS = ("push", "pull")


def totals(stage: Stage) -> dict[str, int]:
    names = ("expired_leases", "transfer_errors", "validation_failures", "engine_errors")
    workers = stage.world.workers.values()
    return {name: sum(w.node.counters[name] for w in workers) for name in names}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("kind", "counter", "reason"),
    [
        ("fail", "transfer_errors", "transfer_failed: injected fault"),
        ("corrupt", "validation_failures", "checksum_mismatch"),
        ("engine", "engine_errors", "engine_error: injected fault"),
        ("silent", "expired_leases", "destination_lease_expired"),
    ],
)
def test_expiry_mixed_with_link_errors(kind, counter, reason, direction):
    """One cause raises one counter, and the attempt that it ends carries its name."""
    stage = Stage(direction=direction)
    if kind == "silent":
        stage.source.slowness = 5_000
        stage.lose = lambda n, s, r, m: s == "prefill-0" and isinstance(m, Renew)
    elif kind == "engine":
        stage.hit_batch(stage.source)
    else:
        stage.hit_chunk(1, kind)
    stage.submit(prompt=40)
    stage.finish_right()
    assert totals(stage) == {name: int(name == counter) for name in totals(stage)}
    assert [t.data["reason"] for *_, t in stage.traced("attempt_failed")] == [reason]
    assert stage.started().mode == "recomputed", "the client is told that it went another way"


@pytest.mark.parametrize("mode", MODES)
def test_replay_that_differs_from_run_to_run(mode):
    hashes = set()
    for _ in range(2):
        stage = Stage(**MODES[mode], blocks=16)
        for number in range(6):
            stage.submit(f"r{number}", first=number * 11)
        stage.run_for(1_500)
        stage.crash(stage.destination)
        stage.finish()
        hashes.add(stage.world.trace_hash)
    assert len(hashes) == 1


def test_success_without_a_first_token():
    """A request that got no token is a failure with a reason, never a success of zero time."""
    for number in range(1, 4):
        stage = Stage(attempts=1)
        stage.hit_chunk(number, "fail")
        stage.submit()
        stage.finish()
        assert isinstance(stage.end(), Failed)
        assert stage.tokens() == []
        counters = stage.world.router.counters
        assert (counters["finished"], counters["failed"]) == (0, 1)
