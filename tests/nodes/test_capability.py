"""Transfer rights end to end: whatever is forged, replayed, lost or revoked, the text is exact."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from baton.config import RouterConfig
from baton.core import events
from baton.core.effects import DigestChunk, Effect, MoveChunk, Send
from baton.core.events import Event
from baton.core.ids import Direction, Mode
from baton.core.messages import (
    Aborted,
    AbortTransfer,
    Authorized,
    ChunksReady,
    Denied,
    Message,
    Prefill,
    Present,
    Reserved,
    RevokeRoutes,
    SourceFailed,
)
from baton.protocol.capability import signed_bytes
from baton.protocol.signing import HmacKey
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker
from baton.sim.world import KEY
from tests.stage import Stage, from_process, uneven_plan

PROMPT = list(range(40))
DIRECTIONS = pytest.mark.parametrize("direction", list(Direction))


def replace(value, **changes):
    return msgspec.structs.replace(value, **changes)


class Orders(Observer):
    """Which bytes were touched before the destination had answered for their transfer."""

    def __init__(self) -> None:
        self.early: list[Effect] = []
        self.num = 0
        self._answered: set[int] = set()

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(message=Authorized(fence=fence)):
                    self._answered.add(fence.reservation_id)
                case MoveChunk(reservation_id=number) | DigestChunk(reservation_id=number):
                    self.num += 1
                    if number not in self._answered:
                        self.early.append(effect)


class Watched(Stage):
    """Counts the orders of bytes; its chunks are two blocks of one layer."""

    def __init__(self, *roles: str, direction: Direction = Direction.PUSH, **more: Any) -> None:
        self.orders = Orders()
        transfer = {"direction": direction, **more.pop("transfer", {})}
        super().__init__(uneven_plan(*roles, transfer=transfer, **more), observers=[self.orders])

    def counters(self, worker_id: str) -> dict[str, int]:
        return self.world.workers[worker_id].node.counters

    def revoke(self) -> None:
        self.world.feed_router(events.RoutesRevoked(reason="test"))

    def check(self) -> None:
        """The texts are exact, no byte was early, and nothing is held at the end."""
        self.assert_all_right()
        assert self.orders.early == []
        self.settle()


def swap(stage: Stage, kind: type, change: Callable[[Any], Message]) -> list[Message]:
    """Replace the next message of a kind on the wire; returns what was replaced."""
    swapped: list[Message] = []

    def lose(number: int, sender: str, receiver: str, message: Message) -> bool:
        if not isinstance(message, kind) or swapped:
            return False
        swapped.append(message)
        stage.world.network.send(receiver, from_process(sender, change(message)))
        return True

    stage.lose = lose
    return swapped


# -- the honest flow -------------------------------------------------------------------------------


@DIRECTIONS
@pytest.mark.parametrize("seed", range(6))
def test_every_transfer_is_authorized_once_before_its_first_byte(direction, seed):
    stage = Watched(direction=direction, seed=seed)
    for number in range(4):
        stage.submit(f"r{number}", [number, *PROMPT])
    stage.serve()
    assert len(stage.kinds(Present)) == len(stage.kinds(Authorized)) == 4
    assert stage.orders.num > 0
    stage.check()
    assert not any("denied" in name for name in stage.world.marks())


@DIRECTIONS
def test_the_router_mints_exactly_what_was_granted(direction):
    stage = Watched(direction=direction)
    stage.submit("r", PROMPT)
    stage.serve()
    (grant,) = [message.grant for message in stage.kinds(Reserved)]
    (prefill,) = stage.kinds(Prefill)
    held = prefill.capability.capability
    assert held.fence == grant.fence and held.route_epoch == grant.route_epoch == 2
    assert held.direction is direction and held.max_nbytes == 10 * 3 * 4 * 2 * 4
    blocks = [
        block
        for region in held.regions
        if region.worker_id == "decode-1"
        for block in range(region.block_start, region.block_start + region.num_blocks)
    ]
    assert blocks == sorted(grant.block_ids)
    pools = [(r.block_start, r.num_blocks) for r in held.regions if r.worker_id == "prefill-0"]
    assert pools == ([(0, 64)] if direction is Direction.PULL else [])
    assert held.ttl_us == 10_000_000


def test_nothing_is_minted_where_nothing_crosses():
    stage = Watched()
    for name in ("a", "b"):  # the second finds the whole prompt at the destination
        stage.submit(name, PROMPT)
        stage.serve()
    colocated = Watched("mixed")
    colocated.submit("r", PROMPT)
    colocated.serve()
    colocated.check()
    first, second = stage.kinds(Prefill)
    assert first.capability is not None and second.grant.block_ids == ()
    assert [second.capability, *(p.capability for p in colocated.kinds(Prefill))] == [None, None]
    assert len(stage.kinds(Present)) == 1
    assert stage.started("b").mode is Mode.DISAGGREGATED
    stage.check()


# -- lost, repeated and late words -----------------------------------------------------------------


@DIRECTIONS
@pytest.mark.parametrize("kind", [Present, Authorized], ids=lambda kind: kind.__name__)
def test_a_lost_word_is_said_again(kind, direction):
    stage = Watched(direction=direction)
    lost: list[Message] = []
    stage.lose = lambda n, s, r, m: isinstance(m, kind) and len(lost) < 3 and not lost.append(m)
    stage.submit("r", PROMPT)
    stage.serve()
    assert len(lost) == 3
    assert stage.world.router.counters["fallback_recompute"] == 0
    stage.check()


@DIRECTIONS
@pytest.mark.parametrize("seed", range(4))
def test_every_word_may_come_three_times_and_late(direction, seed):
    stage, rng = Watched(direction=direction, seed=seed), Random(seed)
    again: list[tuple[str, str, Message]] = []

    def repeat(sender: str, receiver: str, message: Message) -> tuple[int, ...]:
        if not isinstance(message, Present | Authorized):
            return (0,)
        again.append((sender, receiver, message))
        return (0, rng.randrange(1, 10_000), rng.randrange(1, 10_000))

    stage.delay_us = repeat
    stage.submit("r", PROMPT, max_tokens=100)
    stage.until(lambda: len(stage.tokens()) > 3)
    assert stage.destination.node.decode.sequences(), "not a moment amid the stream"
    assert {type(message) for _, _, message in again} == {Present, Authorized}
    for sender, receiver, message in again[:]:
        stage.hand(receiver, message, sender)
    stage.serve()
    assert not stage.kinds(AbortTransfer, Denied)
    stage.check()


def test_a_presentation_after_an_abort_is_answered_by_an_abort():
    stage = Watched()
    presented: list[Message] = []
    stage.lose = lambda n, s, r, m: isinstance(m, Present) and not presented.append(m)
    stage.submit("r", PROMPT)
    stage.until(lambda: presented)
    stage.world.cancel("r", "disconnect")
    stage.serve()
    stage.hand("decode-1", presented[0], "prefill-0")
    assert stage.kinds(AbortTransfer)[-1].reason == "not_reserved"
    stage.settle()


# -- forged and replayed ---------------------------------------------------------------------------


def wider(signed):
    held = signed.capability
    return replace(signed, capability=replace(held, max_nbytes=held.max_nbytes + 1))


def by_stranger(signed):
    key = HmacKey(signed.capability.issuer, b"stranger" * 4)
    return replace(signed, signature=key.sign(signed_bytes(signed.capability)))


FORGERIES = pytest.mark.parametrize("forge", [wider, by_stranger])


@DIRECTIONS
@FORGERIES
@pytest.mark.parametrize("kind", [Prefill, Present], ids=lambda kind: kind.__name__)
def test_a_forged_capability_is_denied_on_either_side_and_the_request_is_served(
    kind, forge, direction
):
    stage = Watched(direction=direction)
    swapped = swap(stage, kind, lambda m: replace(m, capability=forge(m.capability)))
    stage.submit("r", PROMPT)
    stage.serve()
    assert len(swapped) == 1
    side = "prefill-0" if kind is Prefill else "decode-1"
    assert stage.counters(side)["capability_denied_signature"] == 1
    assert stage.world.router.counters["fallback_recompute"] == 1
    assert stage.orders.num == 0
    stage.check()


@pytest.mark.parametrize(
    ("tenants", "reason"), [(("t", "t"), "transfer"), (("t1", "t2"), "tenant")]
)
@pytest.mark.parametrize("kind", [Prefill, Present], ids=lambda kind: kind.__name__)
def test_a_capability_of_another_request_or_tenant_is_denied(kind, tenants, reason):
    stage = Watched()
    stage.submit("a", [1, *PROMPT], tenant_id=tenants[0])
    stage.serve()
    used = stage.kinds(Prefill)[0].capability
    swap(stage, kind, lambda m: replace(m, capability=used))
    stage.submit("r", PROMPT, tenant_id=tenants[1])
    stage.serve()
    side = "prefill-0" if kind is Prefill else "decode-1"
    assert stage.counters(side)[f"capability_denied_{reason}"] == 1
    stage.check()


def honestly(**changes):
    """The router's own signature over something it should not have signed."""

    def sign(message):
        held = replace(message.capability.capability, **changes)
        signed = replace(message.capability, capability=held)
        return replace(message, capability=replace(signed, signature=KEY.sign(signed_bytes(held))))

    return sign


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"regions": ()}, "regions"),
        ({"max_nbytes": 1}, "bytes"),
        ({"direction": Direction.PULL}, "direction"),
        ({"route_epoch": 1}, "route_epoch"),
        ({"ttl_us": 10_000_001}, "ttl"),
    ],
)
def test_a_valid_signature_is_not_enough(changes, reason):
    stage = Watched()
    swap(stage, Present, honestly(**changes))
    stage.submit("r", PROMPT)
    stage.serve()
    assert stage.counters("decode-1")[f"capability_denied_{reason}"] == 1
    assert [m.reason for m in stage.kinds(Aborted)] == [f"capability_{reason}"]
    assert stage.orders.num == 0
    stage.check()


def test_a_chunk_without_a_right_is_not_taken():
    stage = Watched()
    stage.lose = lambda n, s, r, m: isinstance(m, Present)
    stage.submit("r", PROMPT)
    stage.until(lambda: stage.kinds(Present))
    reservation_id = stage.kinds(Reserved)[0].grant.fence.reservation_id
    arrived = events.ChunkArrived(
        source_id="prefill-0", source_epoch=1, reservation_id=reservation_id,
        chunk_id=0, nbytes=64, checksum=1,
    )  # fmt: skip
    stage.destination.feed(arrived)
    assert stage.counters("decode-1")["unauthorized_chunks"] == 1
    stage.lose = lambda *_: False
    stage.serve()
    assert stage.kinds(AbortTransfer)[0].reason == "unauthorized_chunk"
    stage.check()


def test_a_reader_touches_only_what_it_was_granted_of_the_source():
    stage = Watched(direction=Direction.PULL)
    outside = tuple(range(60, 70))
    swap(stage, ChunksReady, lambda m: replace(m, source_block_ids=outside))
    stage.submit("r", PROMPT)
    stage.serve()
    assert [m.reason for m in stage.kinds(Aborted)] == ["capability_regions"]
    stage.check()


def test_a_capability_that_was_held_back_has_expired():
    stage = Watched(transfer={"retry_ms": 500, "capability_ttl_ms": 500})
    held_back: list[Message] = []
    stage.lose = lambda n, s, r, m: (
        isinstance(m, Prefill) and m.fence.request_id == "r" and not held_back.append(m)
    )
    stage.submit("r", PROMPT)
    stage.until(lambda: held_back)
    stage.run_for(600_000)
    stage.submit("later", [7, *PROMPT])  # tells the source how late it is by the router's clock
    stage.until(lambda: stage.tokens("later"))
    stage.lose = lambda *_: False
    stage.serve()
    denied = [m for m in stage.kinds(Denied) if m.reason == "capability_expired"]
    assert len(denied) == 1 and denied[0].transient
    assert stage.counters("prefill-0")["capability_denied_expired"] == 1
    assert stage.started().mode is Mode.DISAGGREGATED, "the source is not to blame"
    stage.check()


# -- revocation ------------------------------------------------------------------------------------


@DIRECTIONS
@pytest.mark.parametrize("seed", range(25))
def test_routes_revoked_at_any_moment_cost_a_retry_at_most(direction, seed):
    """Revoked after `8 * seed` steps: while reserving, computing, moving, sealing or decoding."""
    stage = Watched(direction=direction, seed=seed)
    stage.submit("r", PROMPT)
    stage.submit("s", [3, *PROMPT])
    stage.steps(8 * seed)
    before = stage.world.router.context.rights.route_epoch
    stage.revoke()
    stage.serve()
    assert stage.world.router.counters["route_revocations"] == 1
    assert stage.world.router.counters["failed"] == 0
    for worker in stage.world.workers.values():
        assert worker.node.context.gate.revoked_below == before + 1
    for name in ("r", "s"):
        assert stage.started(name).mode is Mode.DISAGGREGATED, "no worker is to blame"
    stage.check()


def test_a_transfer_under_way_ends_with_the_revocation_and_its_successor_has_a_new_epoch():
    stage = Watched()
    stage.submit("r", PROMPT)
    stage.until(lambda: stage.orders.num > 2)
    stage.revoke()
    stage.serve()
    assert {m.reason for m in stage.kinds(Aborted, SourceFailed)} == {"routes_revoked"}
    assert [m.grant.route_epoch for m in stage.kinds(Reserved)] == [2, 3]
    assert stage.traced("routes_revoked")
    stage.check()


def test_many_revocations_do_not_use_up_the_attempts():
    stage = Watched(router=RouterConfig(max_attempts=2))
    stage.submit("r", PROMPT)
    for count in range(1, 8):
        stage.until(lambda count=count: len(stage.kinds(Prefill)) >= count)
        stage.revoke()
    stage.serve()
    assert stage.started().mode is Mode.DISAGGREGATED
    stage.check()


def test_what_is_published_and_what_stays_in_one_worker_goes_on():
    for roles in (("prefill", "decode"), ("mixed",)):
        stage = Watched(*roles)
        stage.submit("r", PROMPT, max_tokens=30)
        stage.until(lambda stage=stage: len(stage.tokens()) > 3)
        assert stage.destination.node.decode.sequences(), "not a moment amid the stream"
        stage.revoke()
        stage.serve()
        assert len(stage.kinds(Reserved)) == 1
        stage.check()
    stage = Watched("mixed")
    stage.submit("r", PROMPT)
    stage.until(lambda: stage.kinds(Prefill))
    stage.revoke()
    stage.serve()
    assert len(stage.kinds(Reserved)) == 1
    stage.check()


@pytest.mark.parametrize("deaf", ["prefill-0", "decode-1"])
def test_a_lost_revocation_is_repeated_by_heartbeats(deaf):
    stage = Watched()
    lost: list[Message] = []
    stage.lose = lambda n, s, r, m: (
        isinstance(m, RevokeRoutes) and r == deaf and len(lost) < 2 and not lost.append(m)
    )
    stage.submit("r", PROMPT)
    stage.until(lambda: stage.orders.num > 0)
    stage.revoke()
    stage.serve()
    stage.run_for(2_000_000)
    assert len(lost) == 2
    assert stage.world.workers[deaf].node.context.gate.revoked_below == 3
    stage.check()


def test_a_worker_that_joins_later_is_told():
    stage = Watched("prefill", "decode", "decode")
    stage.world.crash("decode-2", noticed_after_us=0, down_us=100_000)
    stage.until(lambda: stage.world.router.fleet.get("decode-2") is None)
    stage.revoke()
    stage.until(lambda: stage.world.router.fleet.get("decode-2") is not None)
    assert [to for _, to, m in stage.sent if isinstance(m, RevokeRoutes)][-1] == "decode-2"
    stage.run_for(1_000_000)
    # Three joined, one was lost, then all was revoked.
    assert stage.world.workers["decode-2"].node.context.gate.revoked_below == 5


def test_the_route_epoch_counts_joins_and_losses_and_disturbs_nobody():
    stage = Watched("prefill", "decode", "decode")
    rights = stage.world.router.context.rights
    assert rights.route_epoch == 3
    stage.submit("r", PROMPT)
    stage.until(lambda: stage.orders.num > 0)
    idle = next(
        name
        for name in ("decode-1", "decode-2")
        if not stage.world.workers[name].node.destination.incoming
    )
    stage.world.crash(idle, noticed_after_us=0, down_us=1_000_000)
    stage.until(lambda: rights.route_epoch == 4)
    assert rights.revoked_below == 0
    stage.serve()
    assert len(stage.kinds(Reserved)) == 1
    stage.check()
