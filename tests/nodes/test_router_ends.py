"""How the router ends what is cancelled, revoked, lost or late, and what it counts meanwhile."""

import msgspec
import pytest

from baton.config import RouterConfig
from baton.core import effects, events
from baton.core.delivery import Finished
from baton.core.ids import Role
from baton.core.manifest import ChunkGeometry, Grant
from baton.core.messages import (
    Aborted,
    Cancel,
    Denied,
    Envelope,
    Load,
    Message,
    Prefill,
    Published,
    Reserve,
    Reserved,
    TokenRow,
    TokenRows,
)
from baton.core.request import Request, SamplingParams, Token
from baton.nodes.fleet import WorkerView
from tests.nodes.joining import hello, info, lone_router
from tests.protocol.destination_worker import DestinationWorker

ASKED = Request(request_id="r", prompt_token_ids=(1, 2, 3), sampling=SamplingParams(max_tokens=2))
BUDGET_US = 1_000_000


class Route:
    """Prefill workers p and q, decode worker d; request r has its first attempt on p and d."""

    def __init__(self) -> None:
        self.router = lone_router(RouterConfig(ttft_budget_ms=BUDGET_US // 1000))
        self.now_us = 5
        hello(self.router, info("p", Role.PREFILL))
        hello(self.router, info("q", Role.PREFILL))
        hello(self.router, info("d"))
        self.feed(events.Submitted(request=ASKED))
        self.record = self.router.records["r"]
        self.fence = self.record.fence
        assert self.fence is not None and self.fence.source_id == "p"

    def feed(self, event: events.Event) -> list[effects.Effect]:
        return self.router.handle(event, self.now_us)

    def hear(self, message: Message, sender_id: str = "d") -> list[tuple[str, Message]]:
        """A word of a worker; what the router says because of it."""
        envelope = Envelope(sender_id=sender_id, sender_epoch=1, message=message)
        found = self.feed(events.Received(envelope=envelope))
        return [(e.to, e.message) for e in found if isinstance(e, effects.Send)]

    def reserved(self) -> Reserved:
        """What d grants."""
        asked = self.record.unanswered
        assert isinstance(asked, Reserve)
        grant = Grant(
            fence=msgspec.structs.replace(asked.fence, reservation_id=7),
            token_start=0,
            num_tokens=self.record.num_tokens,
            block_ids=(0,),
            geometry=ChunkGeometry(chunk_layers=1, chunk_blocks=1),
            credit_nbytes=1 << 20,
            direction=asked.direction,
            schedule=asked.schedule,
            route_epoch=asked.route_epoch,
        )
        return Reserved(grant=grant)

    def publish(self, cached_tokens: int = 0) -> None:
        """The first attempt decodes from now on."""
        self.hear(self.reserved())
        assert self.record.fence is not None
        self.hear(Published(fence=self.record.fence, cached_tokens=cached_tokens))

    def token(self, index: int) -> None:
        """d sends its next token."""
        token = Token(index=index, token_id=5)
        row = TokenRow(request_id="r", generation=self.record.generation, token=token)
        self.hear(TokenRows(rows=(row,)))


def kinds(said: list[tuple[str, Message]]) -> list[tuple[str, type]]:
    return [(to, type(message)) for to, message in said]


def ends(found: list[effects.Effect]) -> list[Finished]:
    return [e.delivery for e in found if isinstance(e, effects.Deliver)]


def test_a_grant_that_comes_after_the_revocation_of_its_route_starts_no_prefill():
    route = Route()
    grant = route.reserved()
    assert (("p", Prefill)) in kinds(Route().hear(grant)), "without a revocation it does"
    route.feed(events.RoutesRevoked(reason="drill"))
    said = route.hear(grant)
    assert not [m for _, m in said if isinstance(m, Prefill)]
    reasons = {to: m.reason for to, m in said if isinstance(m, Cancel)}
    assert reasons == {"p": "routes_revoked", "d": "routes_revoked"}
    assert route.record.generation == 2, "the next attempt is under the new route epoch"


def test_a_source_that_died_is_avoided_by_the_next_attempt_though_it_lives_again():
    """Even where the attempt ends in a denial, since the destination never knew that source."""
    route = Route()
    route.feed(events.WorkerLost(worker_id="p", epoch=1))
    hello(route.router, info("p", Role.PREFILL, epoch=2))
    route.feed(events.Submitted(request=msgspec.structs.replace(ASKED, request_id="other")))
    pending = {view.info.worker_id: view.pending_tokens for view in route.router.fleet}
    route.router.fleet.get("q").prefill_tokens["busy"] = 100
    assert pending["p"] < 100, "the shortest queue is that of p"
    route.hear(Denied(fence=route.fence, reason="source_unknown", transient=True))
    route.hear(Load(snapshot=DestinationWorker().node.snapshot()))
    assert route.record.generation == 2
    assert route.record.fence is not None and route.record.fence.source_id == "q"


def test_a_cancel_waits_for_its_workers_two_leases_and_no_longer():
    route = Route()
    lease_us = route.router.context.transfer.lease_ms * 1000
    started_us = route.now_us = 77
    route.feed(events.Cancelled(request_id="r", reason="disconnect"))
    route.now_us = started_us + 2 * lease_us - 1
    assert ends(route.feed(events.Tick())) == [] and "r" in route.router.records
    route.now_us += 1_000_000
    (end,) = ends(route.feed(events.Tick()))
    assert end.finish_reason == "cancelled" and not route.router.records


def test_a_request_that_the_router_ends_itself_reports_the_rows_that_were_reused():
    """Every token was delivered, and then the worker died without saying that it had finished."""
    route = Route()
    route.publish(cached_tokens=2)
    route.token(0)
    route.token(1)
    found = route.feed(events.WorkerLost(worker_id="d", epoch=1))
    (end,) = ends(found)
    assert (end.finish_reason, end.usage.cached_tokens) == ("length", 2)


def test_a_cancelled_request_whose_worker_died_reports_the_rows_that_were_reused():
    route = Route()
    route.publish(cached_tokens=2)
    route.feed(events.Cancelled(request_id="r", reason="disconnect"))
    (end,) = ends(route.feed(events.WorkerLost(worker_id="d", epoch=1)))
    assert (end.finish_reason, end.usage.cached_tokens) == ("cancelled", 2)


def test_a_stream_whose_worker_died_goes_on_elsewhere_at_once():
    route = Route()
    route.publish()
    route.token(0)
    hello(route.router, info("e"))
    route.feed(events.WorkerLost(worker_id="d", epoch=1))
    assert route.record.fence is not None and route.record.fence.destination_id == "e"
    assert isinstance(route.record.unanswered, Reserve)
    assert route.record.unanswered.output_token_ids == (5,)


def test_a_started_request_waits_anew_when_its_worker_fails():
    """The time to its first token is over, and nothing is wrong with that."""
    route = Route()
    route.publish()
    route.token(0)
    route.now_us = 3 * BUDGET_US
    assert route.record.fence is not None
    route.hear(Aborted(fence=route.record.fence, reason="engine_error"))
    assert route.record.generation == 2, "with room it is routed again at once"
    route.hear(Denied(fence=route.record.fence, reason="no_kv_capacity", transient=True))
    route.now_us += BUDGET_US // 2
    assert ends(route.feed(events.Tick())) == [] and "r" in route.router.records
    route.now_us += BUDGET_US
    (end,) = ends(route.feed(events.Tick()))
    assert getattr(end, "code", "") == "queue_timeout"


@pytest.mark.parametrize("num_quarantined", [0, 10])
def test_blocks_in_quarantine_are_no_room(num_quarantined):
    view = WorkerView(info("d"), 1)
    snapshot = DestinationWorker().node.snapshot()
    view.snapshot = msgspec.structs.replace(snapshot, quarantined_blocks=num_quarantined)
    assert view.load().headroom_blocks == view.info.num_blocks - num_quarantined
