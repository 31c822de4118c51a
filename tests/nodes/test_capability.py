"""Transfer rights end to end: whatever is forged, replayed, lost or revoked, the text is exact."""

import msgspec
import pytest

from baton.config import RouterConfig, TransferConfig
from baton.core import effects, events
from baton.core.ids import Direction, Mode, Role
from baton.core.messages import (
    Aborted,
    AbortTransfer,
    Authorized,
    ChunksReady,
    Denied,
    Envelope,
    Prefill,
    Present,
    Reserved,
    RevokeRoutes,
    SourceFailed,
)
from baton.protocol.capability import signed_bytes
from baton.protocol.signing import HmacKey
from tests.nodes.cluster import Cluster, reference

PROMPT = list(range(40))
EXPECTED = reference(PROMPT)
DIRECTIONS = pytest.mark.parametrize("direction", list(Direction))


def replace(value, **changes):
    return msgspec.structs.replace(value, **changes)


class Watched(Cluster):
    """Remembers which orders of bytes each transfer made before its right was answered."""

    def __init__(self, roles=("prefill", "decode"), direction=Direction.PUSH, **more):
        self.early: list[object] = []
        self.num_orders = 0
        self.rights: dict[int, object] = {}
        transfer = TransferConfig(chunk_nbytes=128, credit_nbytes=256, direction=direction)
        super().__init__(roles, transfer=more.pop("transfer", transfer), **more)
        self.run(lambda: not self.router.missing(self.now_us))

    def perform(self, host, effect) -> None:
        """A byte may be touched only when the destination has answered."""
        if isinstance(effect, effects.MoveChunk | effects.DigestChunk):
            self.num_orders += 1
            answered = {m.fence.reservation_id for m in sent(self, Authorized)}
            if effect.reservation_id not in answered:
                self.early.append(effect)
        super().perform(host, effect)

    def check(self, request_id: str = "r", expected=EXPECTED) -> None:
        """The text is exact, no byte was early, and nothing is held at the end."""
        assert self.text(request_id) == expected
        assert self.early == []
        self.settle()
        self.assert_nothing_held()


def sent(cluster: Cluster, kind: type) -> list:
    return [message for _, _, message in cluster.sent if isinstance(message, kind)]


def from_worker(sender: str, message) -> Envelope:
    return Envelope(sender_id=sender, sender_epoch=1, message=message)


def swap(cluster: Cluster, kind: type, change, *, times: int = 1) -> list:
    """Replace the next messages of a kind on the wire; returns what was replaced."""
    swapped: list = []

    def drop(sender, receiver, message) -> bool:
        if not isinstance(message, kind) or len(swapped) == times:
            return False
        swapped.append(message)
        epoch = 0 if sender == "router" else 1
        envelope = Envelope(sender_id=sender, sender_epoch=epoch, message=change(message))
        cluster.put(("wire", sender, receiver), lambda: cluster.feed(receiver, envelope))
        return True

    cluster.drop = drop
    return swapped


# -- the honest flow -------------------------------------------------------------------------------


@DIRECTIONS
@pytest.mark.parametrize("seed", range(6))
def test_every_transfer_is_authorized_once_before_its_first_byte(direction, seed):
    cluster = Watched(direction=direction, seed=seed)
    for number in range(4):
        cluster.submit(f"r{number}", [number, *PROMPT])
    cluster.run()
    assert len(sent(cluster, Present)) == len(sent(cluster, Authorized)) == 4
    assert cluster.num_orders > 0
    for number in range(4):
        cluster.check(f"r{number}", reference([number, *PROMPT]))
    assert not any("denied" in name for h in cluster.hosts.values() for name in h.node.counters)


@DIRECTIONS
def test_the_router_mints_exactly_what_was_granted(direction):
    cluster = Watched(direction=direction)
    cluster.submit("r", PROMPT)
    cluster.run()
    (grant,) = [message.grant for message in sent(cluster, Reserved)]
    (prefill,) = sent(cluster, Prefill)
    held = prefill.capability.capability
    assert held.fence == grant.fence and held.route_epoch == grant.route_epoch == 2
    assert held.direction is direction and held.max_nbytes == 10 * 3 * 4 * 2 * 2 * 4
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
    cluster = Watched()
    for name in ("a", "b"):  # the second finds the whole prompt at the destination
        cluster.submit(name, PROMPT)
        cluster.run()
    colocated = Watched(("mixed",))
    colocated.submit("r", PROMPT)
    colocated.run()
    colocated.check()
    first, second = sent(cluster, Prefill)
    assert first.capability is not None and second.grant.block_ids == ()
    assert [second.capability, *(p.capability for p in sent(colocated, Prefill))] == [None, None]
    assert len(sent(cluster, Present)) == 1
    assert cluster.started("b").mode is Mode.DISAGGREGATED
    cluster.check("b")


# -- lost, repeated and late words -----------------------------------------------------------------


@DIRECTIONS
@pytest.mark.parametrize("kind", [Present, Authorized], ids=lambda kind: kind.__name__)
def test_a_lost_word_is_said_again(kind, direction):
    cluster = Watched(direction=direction)
    lost: list = []
    cluster.drop = lambda s, r, m: isinstance(m, kind) and len(lost) < 3 and not lost.append(m)
    cluster.submit("r", PROMPT)
    cluster.run()
    assert len(lost) == 3
    assert cluster.router.counters["fallback_recompute"] == 0
    cluster.check()


@DIRECTIONS
@pytest.mark.parametrize("seed", range(4))
def test_every_word_may_come_three_times_and_late(direction, seed):
    cluster = Watched(direction=direction, seed=seed)
    again: list[tuple[str, Envelope]] = []

    def repeat(sender, receiver, message) -> bool:
        if isinstance(message, Present | Authorized):
            envelope = from_worker(sender, message)
            again.append((receiver, envelope))
            for _ in range(2):
                cluster.put(("wire again", sender, receiver),
                            lambda e=envelope, r=receiver: cluster.feed(r, e))  # fmt: skip
        return False

    cluster.drop = repeat
    cluster.submit("r", PROMPT, max_tokens=20)
    cluster.run(lambda: len(cluster.text("r")) > 3)
    for receiver, envelope in again[:]:
        cluster.feed(receiver, envelope)
    cluster.run()
    assert not sent(cluster, AbortTransfer) and not sent(cluster, Denied)
    cluster.check(expected=reference(PROMPT, max_tokens=20))


def test_a_presentation_after_an_abort_is_answered_by_an_abort():
    cluster = Watched()
    presented: list = []
    cluster.drop = lambda s, r, m: isinstance(m, Present) and not presented.append(m)
    cluster.submit("r", PROMPT)
    cluster.run(lambda: bool(presented))
    cluster.cancel("r")
    cluster.run()
    cluster.feed("decode-1", from_worker("prefill-0", presented[0]))
    assert sent(cluster, AbortTransfer)[-1].reason == "not_reserved"
    cluster.settle()
    cluster.assert_nothing_held()


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
    cluster = Watched(direction=direction)
    swapped = swap(cluster, kind, lambda m: replace(m, capability=forge(m.capability)))
    cluster.submit("r", PROMPT)
    cluster.run()
    assert len(swapped) == 1
    side = "prefill-0" if kind is Prefill else "decode-1"
    assert cluster.hosts[side].node.counters["capability_denied_signature"] == 1
    assert cluster.router.counters["fallback_recompute"] == 1
    assert cluster.num_orders == 0
    cluster.check()


@pytest.mark.parametrize(
    ("tenants", "reason"), [(("t", "t"), "transfer"), (("t1", "t2"), "tenant")]
)
@pytest.mark.parametrize("kind", [Prefill, Present], ids=lambda kind: kind.__name__)
def test_a_capability_of_another_request_or_tenant_is_denied(kind, tenants, reason):
    cluster = Watched()
    cluster.submit("a", [1, *PROMPT], tenant_id=tenants[0])
    cluster.run()
    used = sent(cluster, Prefill)[0].capability
    swap(cluster, kind, lambda m: replace(m, capability=used))
    cluster.submit("r", PROMPT, tenant_id=tenants[1])
    cluster.run()
    side = "prefill-0" if kind is Prefill else "decode-1"
    assert cluster.hosts[side].node.counters[f"capability_denied_{reason}"] == 1
    cluster.check()


def honestly(cluster: Cluster, **changes):
    """The router's own signature over something it should not have signed."""

    def sign(message):
        held = replace(message.capability.capability, **changes)
        signed = replace(message.capability, capability=held)
        return replace(
            message, capability=replace(signed, signature=cluster.key.sign(signed_bytes(held)))
        )

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
    cluster = Watched()
    swap(cluster, Present, honestly(cluster, **changes))
    cluster.submit("r", PROMPT)
    cluster.run()
    assert cluster.hosts["decode-1"].node.counters[f"capability_denied_{reason}"] == 1
    assert [m.reason for m in sent(cluster, Aborted)] == [f"capability_{reason}"]
    assert cluster.num_orders == 0
    cluster.check()


def test_a_chunk_without_a_right_is_not_taken():
    cluster = Watched()
    cluster.drop = lambda s, r, m: isinstance(m, Present)
    cluster.submit("r", PROMPT)
    cluster.run(lambda: bool(sent(cluster, Present)))
    reservation_id = sent(cluster, Reserved)[0].grant.fence.reservation_id
    arrived = events.ChunkArrived(
        source_id="prefill-0", source_epoch=1, reservation_id=reservation_id,
        chunk_id=0, nbytes=64, checksum=1,
    )  # fmt: skip
    cluster.feed("decode-1", arrived)
    assert cluster.hosts["decode-1"].node.counters["unauthorized_chunks"] == 1
    cluster.drop = lambda *_: False
    cluster.run()
    assert sent(cluster, AbortTransfer)[0].reason == "unauthorized_chunk"
    cluster.check()


def test_a_reader_touches_only_what_it_was_granted_of_the_source():
    cluster = Watched(direction=Direction.PULL)
    outside = tuple(range(60, 70))
    swap(cluster, ChunksReady, lambda m: replace(m, source_block_ids=outside))
    cluster.submit("r", PROMPT)
    cluster.run()
    assert [m.reason for m in sent(cluster, Aborted)] == ["capability_regions"]
    cluster.check()


def test_a_capability_that_was_held_back_has_expired():
    transfer = TransferConfig(
        chunk_nbytes=128, credit_nbytes=256, retry_ms=500, capability_ttl_ms=500
    )
    cluster = Watched(transfer=transfer)
    held_back: list = []
    cluster.drop = lambda s, r, m: (
        isinstance(m, Prefill) and m.fence.request_id == "r" and not held_back.append(m)
    )
    cluster.submit("r", PROMPT)
    cluster.run(lambda: bool(held_back))
    cluster.now_us += 600_000
    cluster.submit("later", [7, *PROMPT])  # tells the source how late it is by the router's clock
    cluster.run(lambda: bool(cluster.text("later")))
    cluster.drop = lambda *_: False
    cluster.run()
    denied = [m for m in sent(cluster, Denied) if m.reason == "capability_expired"]
    assert len(denied) == 1 and denied[0].transient
    assert cluster.hosts["prefill-0"].node.counters["capability_denied_expired"] == 1
    assert cluster.started("r").mode is Mode.DISAGGREGATED, "the source is not to blame"
    cluster.check()


# -- revocation ------------------------------------------------------------------------------------


@DIRECTIONS
@pytest.mark.parametrize("seed", range(25))
def test_routes_revoked_at_any_moment_cost_a_retry_at_most(direction, seed):
    """Revoked after `5 * seed` steps: while reserving, computing, moving, sealing or decoding."""
    cluster = Watched(direction=direction, seed=seed)
    for name in ("r", "s"):
        cluster.submit(name, PROMPT if name == "r" else [3, *PROMPT])
    for _ in range(5 * seed):
        cluster.step()
    before = cluster.router.context.rights.route_epoch
    cluster.feed_router(events.RoutesRevoked(reason="test"))
    cluster.run()
    assert cluster.router.counters["route_revocations"] == 1
    assert cluster.router.counters["failed"] == 0
    for host in cluster.hosts.values():
        assert host.node.context.gate.revoked_below == before + 1
    for name in ("r", "s"):
        assert cluster.started(name).mode is Mode.DISAGGREGATED, "no worker is to blame"
    cluster.check("s", reference([3, *PROMPT]))
    cluster.check("r")


def test_a_transfer_under_way_ends_with_the_revocation_and_its_successor_has_a_new_epoch():
    cluster = Watched()
    cluster.submit("r", PROMPT)
    cluster.run(lambda: cluster.num_orders > 2)
    cluster.feed_router(events.RoutesRevoked(reason="test"))
    cluster.run()
    reasons = {m.reason for m in sent(cluster, Aborted)} | {
        m.reason for m in sent(cluster, SourceFailed)
    }
    assert reasons == {"routes_revoked"}
    assert [m.grant.route_epoch for m in sent(cluster, Reserved)] == [2, 3]
    assert any(trace.name == "routes_revoked" for trace in cluster.traces)
    cluster.check()


def test_many_revocations_do_not_use_up_the_attempts():
    cluster = Watched(router=RouterConfig(max_attempts=2))
    cluster.submit("r", PROMPT)
    for count in range(1, 8):
        cluster.run(lambda count=count: len(sent(cluster, Prefill)) >= count)
        cluster.feed_router(events.RoutesRevoked(reason="test"))
    cluster.run()
    assert cluster.started("r").mode is Mode.DISAGGREGATED
    cluster.check()


def test_what_is_published_and_what_stays_in_one_worker_goes_on():
    for roles in (("prefill", "decode"), ("mixed",)):
        cluster = Watched(roles)
        cluster.submit("r", PROMPT, max_tokens=30)
        cluster.run(lambda cluster=cluster: len(cluster.text("r")) > 3)
        cluster.feed_router(events.RoutesRevoked(reason="test"))
        cluster.run()
        assert len(sent(cluster, Reserved)) == 1
        cluster.check(expected=reference(PROMPT, max_tokens=30))
    cluster = Watched(("mixed",))
    cluster.submit("r", PROMPT)
    cluster.run(lambda: bool(sent(cluster, Prefill)))
    cluster.feed_router(events.RoutesRevoked(reason="test"))
    cluster.run()
    assert len(sent(cluster, Reserved)) == 1
    cluster.check()


@pytest.mark.parametrize("deaf", ["prefill-0", "decode-1"])
def test_a_lost_revocation_is_repeated_by_heartbeats(deaf):
    cluster = Watched()
    lost: list = []
    cluster.drop = lambda s, r, m: (
        isinstance(m, RevokeRoutes) and r == deaf and len(lost) < 2 and not lost.append(m)
    )
    cluster.submit("r", PROMPT)
    cluster.run(lambda: cluster.num_orders > 0)
    cluster.feed_router(events.RoutesRevoked(reason="test"))
    cluster.run()
    cluster.settle(2_000_000)
    assert len(lost) == 2
    assert cluster.hosts[deaf].node.context.gate.revoked_below == 3
    cluster.check()


def test_a_worker_that_joins_later_is_told():
    cluster = Watched()
    cluster.feed_router(events.RoutesRevoked(reason="test"))
    cluster.start("decode-2", 2, Role.DECODE, 1)
    cluster.run(lambda: cluster.router.fleet.get("decode-2") is not None)
    assert [to for _, to, m in cluster.sent if isinstance(m, RevokeRoutes)][-1] == "decode-2"
    cluster.settle(1_000_000)
    assert cluster.hosts["decode-2"].node.context.gate.revoked_below == 3


def test_the_route_epoch_counts_joins_and_losses_and_disturbs_nobody():
    cluster = Watched(("prefill", "decode", "decode"))
    rights = cluster.router.context.rights
    cluster.run(lambda: rights.route_epoch == 3)
    cluster.submit("r", PROMPT)
    cluster.run(lambda: cluster.num_orders > 0)
    idle = next(
        name
        for name in ("decode-1", "decode-2")
        if not cluster.hosts[name].node.destination.incoming
    )
    cluster.kill(idle)
    assert rights.route_epoch == 4 and rights.revoked_below == 0
    cluster.run()
    assert len(sent(cluster, Reserved)) == 1
    cluster.check()
