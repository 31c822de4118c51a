"""A failing seed becomes a short story about the fault that matters."""

import pytest

from baton.protocol.destination import DestinationTransfer
from baton.sim.draw import draw_plan
from baton.sim.shrink import shrink
from baton.sim.telling import Teller
from baton.sim.vopr import run_plan


@pytest.fixture
def blind(monkeypatch):
    """A destination that compares no checksums."""
    checks = DestinationTransfer._checks

    def without_checksums(self, manifest):
        return [row for row in checks(self, manifest) if row[0] != "checksum_mismatch"]

    monkeypatch.setattr(DestinationTransfer, "_checks", without_checksums)


def failing_plan():
    for seed in range(80, 400):  # the failing ones before need more copies before the fault
        plan = draw_plan(seed)
        if plan.rates.corrupt and len(plan.arrivals) > 3:
            outcome = run_plan(plan)
            if not outcome.clean:
                return plan, outcome
    raise AssertionError("no seed notices that checksums are not compared")


def test_a_failing_plan_shrinks_to_a_few_requests_and_one_corrupt_chunk(blind):
    plan, outcome = failing_plan()
    assert outcome.checker == "published-is-true"
    small = shrink(plan, outcome)
    # The fault hits the n-th copy, so what is copied before it stays.
    assert len(small.arrivals) <= 3 < len(plan.arrivals)
    assert [fault.kind for fault in small.counted] == ["corrupt"]
    assert small.scheduled == ()
    teller = Teller()
    again = run_plan(small, teller)
    assert again.checker == outcome.checker
    assert len(teller.lines) < 500
    assert any("sealed" in line for line in teller.lines)


def test_shrinking_never_returns_a_plan_that_fails_otherwise(blind):
    plan, outcome = failing_plan()
    assert run_plan(shrink(plan, outcome)).checker == outcome.checker
