"""Seeds under random faults: fixed ones, and a time-boxed range that is another one every day."""

import subprocess
import sys
import time

import pytest

from baton.core.cache import Milestone
from baton.sim.campaign import campaign
from baton.sim.checks import all_checkers
from baton.sim.draw import draw_plan
from baton.sim.plan import plan_lines
from baton.sim.shrink import as_listed
from baton.sim.vopr import run_plan

FIXED_SEEDS = 300
RANDOM_RANGE_S = 15.0
MUST_HAPPEN = {
    "handoffs",
    "mode_colocated",
    "mode_recomputed",
    "aborts",
    "source_aborts",
    "preemptions",
    "expired_leases",
    "resyncs",
    "duplicate_publications",
    "stale_publications",
    "stale_messages",
    "stale_tokens",
    "stale_chunks",
    "duplicate_tokens",
    "duplicate_chunks",
    "validation_failures",
    "transfer_errors",
    "engine_errors",
    "workers_lost",
    "workers_given_up",
    "unproven_sources",
    "fallback_reroute",
    "fallback_recompute",
    "fallback_fail",
    "denied_reservations",
    "route_revocations",
    "capability_denied_signature",
    "capability_denied_expired",
    "capability_denied_missing",
    "capability_denied_tenant",
    "capability_denied_source",
    "capability_denied_destination",
    "capability_denied_transfer",
    "capability_denied_regions",
    "corrupt_chunks",
    "foreign_messages",
    "foreign_tokens",
    "stale_hellos",
    "hung_workers",
    "failed_read_backs",
    "offered_duplicate",
    "offered_stale",
    "rejected_queue_full",
    "rejected_too_large",
    "tier_stores_lost",
    "tier_loads_lost",
    "tier_recovered",
    "torn_files",
}
"""A run in which these never happen would prove little about them."""
MUST_END = {"stop", "length", "cancelled"} | {
    f"failed: {code}"
    for code in ("not_ready", "queue_full", "queue_timeout", "too_large", "attempts_exhausted")
}


def explain(tally):
    return [f"baton vopr --seed {o.seed}: {o.checker}: {o.text}" for o in tally.failing]


def test_fixed_seeds_are_clean_and_go_through_every_named_outcome():
    tally = campaign(0, FIXED_SEEDS)
    assert explain(tally) == []
    assert tally.num_seeds == FIXED_SEEDS
    assert MUST_HAPPEN - set(tally.marks) == set()
    assert MUST_END - set(tally.ends) == set()


def test_a_random_range_is_clean():
    start = 1_000_000 + int(time.time())
    tally = campaign(start, None, seconds=RANDOM_RANGE_S)
    assert explain(tally) == []
    assert tally.num_seeds >= 20


@pytest.mark.parametrize("seed", [3, 7, 11])
def test_a_seed_replays_to_the_same_trace_in_another_process(seed):
    here = run_plan(draw_plan(seed))
    code = (
        "from baton.sim.draw import draw_plan; from baton.sim.vopr import run_plan; "
        f"print(run_plan(draw_plan({seed})).trace_hash)"
    )
    there = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "12345"},
    )
    assert there.stdout.strip() == here.trace_hash
    assert run_plan(draw_plan(seed + 1)).trace_hash != here.trace_hash


@pytest.mark.parametrize("seed", range(20, 30))
def test_a_run_with_its_faults_written_down_is_the_same_run(seed):
    plan = draw_plan(seed)
    drawn = run_plan(plan)
    assert run_plan(as_listed(plan, drawn)).trace_hash == drawn.trace_hash


def test_a_calm_seed_fails_nothing():
    calm = [seed for seed in range(60) if not (plan := draw_plan(seed)).scheduled and _calm(plan)]
    assert calm
    for seed in calm:
        outcome = run_plan(draw_plan(seed))
        assert outcome.clean
        assert not outcome.faults


def _calm(plan):
    return not any(getattr(plan.rates, name) for name in plan.rates.__struct_fields__)


def test_plans_differ_in_every_dimension():
    plans = [draw_plan(seed) for seed in range(100)]
    for read in (
        lambda p: p.roles,
        lambda p: p.worker.block_size,
        lambda p: p.transfer.direction,
        lambda p: p.transfer.schedule,
        lambda p: p.transfer.credit_nbytes // p.transfer.chunk_nbytes,
        lambda p: p.transfer.lease_ms,
        lambda p: p.cache.milestone is not Milestone.NONE,
        lambda p: p.late_delivery,
        lambda p: bool(p.clocks),
        lambda p: any(a.cancel_after_us >= 0 for a in p.arrivals),
    ):
        assert len({read(plan) for plan in plans}) > 1
    assert all(plan_lines(plan)[0].startswith(f"seed {plan.seed}") for plan in plans)


def test_checkers_have_names_of_their_own():
    names = [checker.name for checker in all_checkers()]
    assert len(set(names)) == len(names)
