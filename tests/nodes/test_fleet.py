"""Pairing: a worker that differs in anything that matters is refused by the name of it."""

import msgspec
import pytest

from baton.config import RouterConfig
from baton.core.events import WorkerLost
from baton.core.ids import Role
from baton.core.messages import PeerUp, Refused, Welcome
from baton.sim.faults import MessageFault
from baton.sim.plan import Plan
from baton.sim.world import World
from tests.nodes.joining import MODEL, hello, info, lone_router


def model(**changes):
    return msgspec.structs.replace(MODEL, **changes)


DIFFERENCES = {
    "version": {"version": "2"},
    "model identity": {
        "model": model(identity=msgspec.structs.replace(MODEL.identity, checkpoint_hash="x"))
    },
    "K/V layout num_kv_heads": {
        "model": model(layout=msgspec.structs.replace(MODEL.layout, num_kv_heads=2))
    },
    "dtype": {"model": model(dtype="bfloat16")},
    "deterministic mode": {"model": model(deterministic=False)},
    "attention backend": {"model": model(attention_backend="PlainForward/torch")},
    "version of torch": {"versions": (("torch", "2.12.0"),)},
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_worker_that_differs_is_refused_by_name(name):
    router = lone_router()
    assert hello(router, info("p", Role.PREFILL)) == [("p", Welcome(epoch=1))]
    ((to, message),) = hello(router, info("d", **DIFFERENCES[name]))
    assert to == "d"
    assert isinstance(message, Refused)
    assert f"its {name} is" in message.reason
    assert "d cannot be paired" in message.reason
    assert router.missing(1) == "no live worker for: decode"


def test_block_sizes_may_differ_between_roles_and_not_within_one():
    router = lone_router()
    hello(router, info("p", Role.PREFILL))
    larger = model(layout=msgspec.structs.replace(MODEL.layout, block_size=16))
    assert ("d", Welcome(epoch=1)) in hello(router, info("d", model=larger))
    assert router.fleet.decode_layout.block_size == 16
    ((to, message),) = hello(router, info("d2"))
    assert to == "d2"
    assert "its K/V layout block_size is 4, the deployment's is 16" in message.reason


def test_equal_workers_are_introduced_to_each_other():
    router = lone_router()
    first, second = info("p", Role.PREFILL), info("d")
    hello(router, first)
    assert hello(router, second) == [
        ("d", Welcome(epoch=1)),
        ("p", PeerUp(info=second)),
        ("d", PeerUp(info=first)),
    ]
    assert router.missing(1) == ""


def test_an_older_life_of_a_worker_cannot_come_back():
    router = lone_router()
    hello(router, info("p", Role.PREFILL))
    hello(router, info("d", epoch=3))
    assert hello(router, info("d", epoch=2)) == []
    assert router.fleet.get("d").info.epoch == 3
    assert router.counters["stale_messages"] == 1


def test_a_repeated_hello_is_welcomed_again_and_changes_nothing():
    router = lone_router()
    hello(router, info("p", Role.PREFILL))
    view, epoch = router.fleet.get("p"), router.context.rights.route_epoch
    assert hello(router, info("p", Role.PREFILL)) == [("p", Welcome(epoch=1))]
    assert router.fleet.get("p") is view
    assert router.context.rights.route_epoch == epoch


@pytest.mark.parametrize("known", [True, False])
def test_a_late_hello_of_a_life_that_is_over_joins_nobody(known):
    router = lone_router()
    if known:
        hello(router, info("d", epoch=2))
    router.handle(WorkerLost(worker_id="d", epoch=2), 1)
    for epoch in (1, 2):
        assert hello(router, info("d", epoch=epoch)) == []
    assert router.fleet.get("d") is None
    assert hello(router, info("d", epoch=3))[0] == ("d", Welcome(epoch=3))


@pytest.mark.parametrize("lane", ["mixed-0>router", "router>mixed-0"])
def test_a_lost_hello_or_welcome_is_said_again(lane):
    lost = MessageFault(lane=lane, number=1, kind="drop")
    plan = Plan(roles=(Role.MIXED,), counted=(lost,), replayed=True)
    world = World(plan)
    world.timeline.run_until(3 * plan.transfer.retry_ms * 1000)
    assert world.applied == [lost]
    assert world.workers["mixed-0"].joined
    assert world.router.missing(world.router_now_us) == ""


def test_readiness_needs_fresh_heartbeats():
    router = lone_router(RouterConfig(worker_timeout_ms=1000))
    hello(router, info("p", Role.PREFILL))
    hello(router, info("d"))
    assert router.missing(500_000) == ""
    assert router.missing(1_100_000) == "no live worker for: decode, prefill"
