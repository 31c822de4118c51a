"""Who may work together, and what a peer's death means to those who live."""

import itertools

import msgspec
import pytest

from baton.core import effects, events
from baton.core.delivery import Failed
from baton.core.ids import Role
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.messages import Load, Refused, Reserve
from baton.core.request import Request, SamplingParams
from baton.sim.faults import Partition
from tests.nodes.joining import MODEL, hello, info, lone_router, sends
from tests.stage import Stage

DIRECTIONS = ("push", "pull")


def submitted(request_id: str = "r") -> events.Submitted:
    sampling = SamplingParams(max_tokens=4)
    return events.Submitted(
        request=Request(request_id=request_id, prompt_token_ids=(1, 2), sampling=sampling)
    )


def other(value):
    if isinstance(value, int):
        return value + 1
    return "bfloat16" if value == "float32" else value + "x"


MISMATCHES = [
    *[("layout", name) for name in KVLayout.__struct_fields__ if name != "axis_order"],
    *[("identity", name) for name in ModelIdentity.__struct_fields__ if name != "model"],
]


@pytest.mark.parametrize("late", [Role.PREFILL, Role.DECODE])
@pytest.mark.parametrize(("part", "field"), MISMATCHES)
def test_mismatch_found_late(part, field, late):
    """Anything that changes what a byte means is refused at the door; the others still serve."""
    value = getattr(getattr(MODEL, part), field)
    changed = msgspec.structs.replace(getattr(MODEL, part), **{field: other(value)})
    model = msgspec.structs.replace(MODEL, **{part: changed})
    deployment = lone_router()
    for name, role in (("p", Role.PREFILL), ("d", Role.DECODE)):
        assert not any(isinstance(m, Refused) for _, m in hello(deployment, info(name, role)))
    ((to, refusal),) = hello(deployment, info("late", late, model=model))
    assert to == "late"
    named = f"K/V layout {field}" if part == "layout" else "model identity"
    assert f"late cannot be paired: its {named} is" in refusal.reason
    assert deployment.missing(1) == ""
    routed = [(to, m) for to, m in sends(deployment, submitted()) if isinstance(m, Reserve)]
    assert [(to, m.fence.source_id) for to, m in routed] == [("d", "p")]


@pytest.mark.parametrize("late", [Role.PREFILL, Role.DECODE])
def test_versions_mixed_by_an_update(late):
    deployment = lone_router()
    hello(deployment, info("p", Role.PREFILL))
    hello(deployment, info("d", Role.DECODE))
    ((_, refusal),) = hello(deployment, info("late", late, version="2"))
    assert "its version is '2', the deployment's is '1'" in refusal.reason
    assert {view.info.worker_id for view in deployment.fleet} == {"p", "d"}


@pytest.mark.parametrize("present", [None, Role.PREFILL, Role.DECODE])
def test_routes_open_before_the_pair_is_ready(present):
    """Before both phases have a worker a request is refused at once, with the missing phase."""
    deployment = lone_router()
    if present is not None:
        hello(deployment, info("w", present))
    delivered = [
        e.delivery for e in deployment.handle(submitted(), 1) if isinstance(e, effects.Deliver)
    ]
    (failed,) = delivered
    assert isinstance(failed, Failed)
    assert (failed.code, failed.status) == ("not_ready", 503)
    assert failed.retry_after_s >= 1
    for role in {Role.PREFILL, Role.DECODE} - {present}:
        assert role in failed.message
    assert not deployment.records


def test_routes_open_while_workers_are_told_of_each_other():
    """From the first moment at which the router serves, requests are served."""
    for delay_us in range(0, 3_000, 150):
        stage = Stage(decode=2)
        stage.crash(stage.destination, down_us=100)
        stage.run_for(delay_us)
        stage.submit()
        stage.finish_right()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("leg", ["source", "destination"])
def test_death_of_a_peer_that_makes_its_partner_ill(leg, direction):
    """The partner keeps its heartbeat, its epoch and its other requests, whenever the peer dies."""
    calm = Stage(direction=direction)
    calm.submit()
    calm.finish_right()
    for number in range(0, len(calm.sent), 2):
        stage = Stage(direction=direction, prefill=2, decode=2)
        heartbeats: list[int] = []
        survivor = stage.worker("decode" if leg == "source" else "prefill").worker_id
        stage.submit("victim")
        stage.submit("bystander", first=100)
        stage.until(lambda stage=stage, n=number: len(stage.sent) > n)
        stage.lose = lambda n, s, r, m, stage=stage, seen=heartbeats, who=survivor: (
            s == who and isinstance(m, Load) and seen.append(stage.now_us) is not None
        )
        victim = getattr(stage, leg)
        stage.crash(victim)
        stage.run_for(2_000_000)
        assert len(heartbeats) >= 9
        assert max(b - a for a, b in itertools.pairwise(heartbeats)) <= 201_000
        assert stage.world.workers[survivor].epoch == 1
        stage.finish_right()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("leg", ["source", "destination"])
def test_pair_that_needs_a_restart_after_an_outage(leg, direction):
    """A peer that died comes back under a new epoch and is used again; nobody else restarts."""
    stage = Stage(direction=direction)
    for life in range(1, 4):
        victim, partner = getattr(stage, leg), stage.destination
        if leg == "destination":
            partner = stage.source
        assert victim.epoch == life
        stage.submit(f"r{life}", first=life * 50)
        stage.until(lambda stage=stage, life=life: stage.traced("routed", f"r{life}"))
        stage.run_for(600)
        stage.crash(victim)
        stage.run_for(2_000_000)
        stage.finish_right()
        assert partner.alive
        assert partner.epoch == 1
        stage.submit(f"after{life}", first=life * 50 + 20)
        stage.finish_right()
        assert stage.started(f"after{life}").mode == "disaggregated"


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_state_of_a_dead_peer_that_is_kept(direction):
    """With the process its epoch is gone everywhere: no job, no reservation, no peer entry."""
    for number in range(14):
        stage = Stage(direction=direction, prefill=2, decode=2, lease=60_000)
        stage.submit()
        stage.until(lambda stage=stage, n=number: len(stage.sent) > n)
        victim = stage.source
        stage.crash(victim, down_us=1_000_000)
        stage.run_for(5_000)
        for worker in stage.world.workers.values():
            assert victim.worker_id not in worker.node.context.peers
            fences = [i.fence for i in worker.node.destination.incoming.values()]
            assert all(fence.source_id != victim.worker_id for fence in fences)
        stage.finish_right()


def test_membership_that_is_served_for_ever():
    """Lost news of deaths and births is repeated until everybody knows who lives."""
    stage = Stage(prefill=2, decode=2)
    stage.lose = lambda n, s, r, m: type(m).__name__ in ("PeerUp", "PeerDown")
    stage.crash(stage.source)
    stage.crash(stage.destination)
    stage.run_for(1_000_000)
    stage.lose = lambda *_: False
    stage.run_for(500_000)
    living = {name: worker.epoch for name, worker in stage.world.workers.items()}
    assert sorted(living.values()) == [1, 1, 2, 2]
    for name, worker in stage.world.workers.items():
        known = {peer.worker_id: peer.epoch for peer in worker.node.context.peers.values()}
        assert known == {other: epoch for other, epoch in living.items() if other != name}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_health_that_shares_a_blocked_loop(direction):
    """A transfer that cannot go on delays no heartbeat and no other pair."""
    stage = Stage(direction=direction, decode=2, worker_timeout=60_000)
    stage.submit("stuck")
    stage.until(lambda: stage.traced("authorized", "stuck"))
    pair = ("prefill-0", stage.destination.worker_id)
    stage.world.strike(Partition(at_us=stage.now_us, between=pair, duration_us=900_000))
    seen = {name: worker.node._version for name, worker in stage.world.workers.items()}
    stage.submit("other", first=100)
    start_us = stage.now_us
    stage.until(lambda: stage.world.end_of("other"))
    assert stage.now_us - start_us < 5_000
    stage.run_for(800_000)
    for name, worker in stage.world.workers.items():
        assert worker.node._version - seen[name] >= 4
    stage.finish_right()
