"""Workers that say what they have no right to say, or what cannot be: nobody else suffers."""

import math

import pytest
from msgspec.structs import replace

from baton.core.ids import Fence, Role
from baton.core.manifest import ChunkGeometry, Grant, grant_defect
from baton.core.messages import (
    Accepted,
    ChunksReady,
    Denied,
    Done,
    Load,
    PeerDown,
    PeerUp,
    Prefill,
    Published,
    Reserve,
    Reserved,
    Seal,
    TokenRow,
    TokenRows,
)
from baton.core.request import Token, Usage
from baton.core.snapshot import Rates
from baton.sim.arithmetic import VOCAB_SIZE
from tests.nodes.joining import MODEL
from tests.stage import Stage


def stage_with_stranger(direction: str = "push", **options: object) -> Stage:
    return Stage(decode=2, direction=direction, **options)


def fence_of_open(stage: Stage) -> Fence:
    record = stage.world.router.records["r"]
    assert record.fence is not None
    return record.fence


def stranger(stage: Stage) -> str:
    fence = fence_of_open(stage)
    others = [name for name in stage.world.workers if name.startswith("decode")]
    return next(name for name in others if name != fence.destination_id)


def test_a_live_third_worker_is_no_party_of_anything():
    """Its answers, tokens and ends are counted and change nothing; the text stays right."""
    stage = stage_with_stranger()
    stage.submit("r", prompt=12, max_tokens=8)
    stage.until(lambda: stage.kinds(Reserved))
    grant = stage.kinds(Reserved)[0].grant
    liar, counters = stranger(stage), stage.world.router.counters
    stage.tell_router(
        liar, Reserved(grant=replace(grant, block_ids=tuple(reversed(grant.block_ids))))
    )
    stage.tell_router(liar, Denied(fence=grant.fence, reason="no", transient=False))
    stage.tell_router(liar, Accepted(fence=grant.fence))
    stage.until(lambda: len(stage.tokens()) >= 2)
    fence = fence_of_open(stage)
    row = TokenRow(
        request_id="r",
        generation=fence.generation,
        token=Token(index=len(stage.tokens()), token_id=666),
    )
    stage.tell_router(liar, Published(fence=fence, cached_tokens=0))
    stage.tell_router(liar, TokenRows(rows=(row,)))
    usage = Usage(prompt_tokens=12, completion_tokens=len(stage.tokens()))
    stage.tell_router(liar, Done(fence=fence, finish_reason="stop", usage=usage))
    assert counters["foreign_messages"] == 5
    assert counters["foreign_tokens"] == 1
    stage.finish_right()


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE, 2**40])
def test_a_token_outside_the_vocabulary_reaches_no_client(token_id):
    stage = stage_with_stranger()
    stage.submit("r", prompt=12, max_tokens=8)
    stage.until(lambda: len(stage.tokens()) >= 2)
    fence = fence_of_open(stage)
    token = Token(index=len(stage.tokens()), token_id=token_id)
    row = TokenRow(request_id="r", generation=fence.generation, token=token)
    stage.tell_router(fence.destination_id, TokenRows(rows=(row,)))
    assert stage.world.router.counters["foreign_tokens"] == 1
    stage.finish_right()


GRANT = Grant(
    fence=Fence(
        tenant_id="",
        request_id="r",
        generation=1,
        attempt=1,
        source_id="prefill-0",
        source_epoch=1,
        destination_id="decode-1",
        destination_epoch=1,
        reservation_id=9,
    ),
    token_start=4,
    num_tokens=10,
    block_ids=(7, 3),
    geometry=ChunkGeometry(chunk_layers=1, chunk_blocks=1),
    credit_nbytes=MODEL.layout.layer_block_nbytes,
    direction="push",
    schedule="layer",
    route_epoch=1,
)
DEFECTS = {
    "reservation_id": {"fence": replace(GRANT.fence, reservation_id=0)},
    "num_tokens": {"num_tokens": 0},
    "num_tokens beyond the pool": {"num_tokens": 4 * 64 + 1},
    "token_start unaligned": {"token_start": 3},
    "token_start beyond": {"token_start": 12},
    "token_start negative": {"token_start": -4},
    "block_ids too few": {"block_ids": (7,)},
    "block_ids too many": {"block_ids": (7, 3, 4)},
    "block_ids twice": {"block_ids": (7, 7)},
    "block_ids outside": {"block_ids": (7, 64)},
    "block_ids negative": {"block_ids": (7, -1)},
    "geometry layers": {"geometry": ChunkGeometry(chunk_layers=0, chunk_blocks=1)},
    "geometry blocks": {"geometry": ChunkGeometry(chunk_layers=1, chunk_blocks=-1)},
    "credit_nbytes": {"credit_nbytes": MODEL.layout.layer_block_nbytes - 1},
    "credit_nbytes negative": {"credit_nbytes": -1},
}


def test_an_honest_grant_has_no_defect():
    assert grant_defect(GRANT, MODEL.layout, 64) == ""
    nothing_to_move = replace(GRANT, token_start=8, num_tokens=8, block_ids=(), credit_nbytes=1)
    assert grant_defect(nothing_to_move, MODEL.layout, 64) == ""


@pytest.mark.parametrize("name", DEFECTS)
def test_a_grant_that_cannot_be_is_named(name):
    defect = grant_defect(replace(GRANT, **DEFECTS[name]), MODEL.layout, 64)
    assert defect == name.split()[0]


WRONG = {
    "route_epoch": {"route_epoch": 999},
    "direction": {"direction": "pull"},
    "schedule": {"schedule": "request"},
    "num_tokens": {"num_tokens": 11},
    "block_ids": {"block_ids": (1, 2, 3_000)},
    "credit_nbytes": {"credit_nbytes": 0},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_grant_that_does_not_answer_what_was_asked_mints_nothing(name):
    """The router starts another attempt, and the worker lets its reservation go."""
    stage = Stage(schedule="layer")
    stage.lose = lambda number, sender, receiver, message: isinstance(message, Reserved)
    stage.submit("r", prompt=12)
    stage.until(lambda: stage.kinds(Reserved))
    stage.lose = lambda *_: False
    grant = replace(stage.kinds(Reserved)[0].grant, **WRONG[name])
    stage.tell_router(grant.fence.destination_id, Reserved(grant=grant))
    assert stage.world.router.counters["bad_grants"] == 1
    assert not [m for m in stage.kinds(Prefill) if m.fence == grant.fence]
    stage.finish_right()


@pytest.mark.parametrize("field", ["tenant_id", "attempt"])
def test_a_grant_under_another_fence_is_stale(field):
    stage = Stage()
    stage.lose = lambda number, sender, receiver, message: isinstance(message, Reserved)
    stage.submit("r", prompt=12)
    stage.until(lambda: stage.kinds(Reserved))
    stage.lose = lambda *_: False
    grant = stage.kinds(Reserved)[0].grant
    other = {"tenant_id": "x", "attempt": 7}[field]
    before = stage.world.router.counters["stale_messages"]
    forged = replace(grant, fence=replace(grant.fence, **{field: other}))
    stage.tell_router(grant.fence.destination_id, Reserved(grant=forged))
    assert stage.world.router.counters["stale_messages"] == before + 1
    stage.finish_right()


def test_a_source_refuses_a_grant_that_cannot_be_and_a_reservation_it_has():
    stage = Stage(prefill=1)
    stage.lose = lambda number, sender, receiver, message: isinstance(message, Prefill)
    stage.submit("r", prompt=12)
    stage.until(lambda: stage.kinds(Prefill))
    stage.lose = lambda *_: False
    asked = stage.kinds(Prefill)[0]
    source = asked.fence.source_id
    bad = replace(asked.grant, geometry=ChunkGeometry(chunk_layers=0, chunk_blocks=0))
    stage.hand(source, replace(asked, grant=bad))
    assert [m.reason for m in stage.kinds(Denied)] == ["grant_mismatch"]
    stage.finish_right()


def test_a_repeated_chunk_id_in_one_offer_is_read_once():
    stage = Stage(direction="pull", chunk=96, credit=96)
    told: list[ChunksReady] = []
    stage.lose = lambda number, sender, receiver, message: isinstance(message, ChunksReady)
    stage.submit("r", prompt=12)
    stage.until(lambda: stage.kinds(ChunksReady))
    stage.lose = lambda *_: False
    offer = stage.kinds(ChunksReady)[0]
    told.append(replace(offer, chunk_ids=offer.chunk_ids * 3))
    stage.hand(offer.fence.destination_id, told[0], offer.fence.source_id)
    stage.finish_right()


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0, 1e308])
def test_rates_that_no_clock_can_have_measured_are_not_believed(rate):
    stage = Stage(prefill=1, schedule="auto")
    snapshot = stage.source.node.snapshot()
    names = Rates.__struct_fields__
    lie = replace(snapshot, version=10**6, rates=Rates(**dict.fromkeys(names, rate)))
    stage.tell_router(stage.source.worker_id, Load(snapshot=lie))
    view = stage.world.router.fleet.get(stage.source.worker_id)
    assert view.snapshot.rates == Rates()
    assert stage.world.router.counters["implausible_rates"] == 1
    stage.submit("r", prompt=30)
    stage.finish_right()


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE, 2**40])
def test_a_first_token_outside_the_vocabulary_is_never_published(token_id):
    stage = Stage(prefill=2)
    seen: list[Seal] = []

    def lose(number, sender, receiver, message):
        if isinstance(message, Seal) and not seen:
            seen.append(message)
            first = replace(message.manifest.first_token, token_id=token_id)
            lie = replace(message, manifest=replace(message.manifest, first_token=first))
            stage.hand(receiver, lie, sender)
            return True
        return False

    stage.lose = lose
    stage.submit("r", prompt=12)
    stage.finish_right()
    assert stage.destination.node.counters["validation_failures"] == 1


def test_a_late_word_does_not_bring_a_dead_peer_back():
    stage = Stage()
    worker, peer = stage.source, stage.destination
    told = PeerUp(info=peer.info())
    stage.hand(worker.worker_id, PeerDown(worker_id=peer.worker_id, epoch=peer.epoch))
    stage.hand(worker.worker_id, told)
    assert peer.worker_id not in worker.node.context.peers
    stage.hand(worker.worker_id, PeerUp(info=replace(peer.info(), epoch=peer.epoch + 1)))
    assert worker.node.context.peers[peer.worker_id].epoch == peer.epoch + 1


def test_workers_of_another_vocabulary_are_not_paired():
    stage = Stage(mixed=2)
    info = stage.worker("mixed").info()
    fleet = stage.world.router.fleet
    for name, changes in (
        ("vocabulary size", {"vocab_size": 5}),
        ("end-of-text tokens", {"eos_token_ids": (1,)}),
    ):
        other = replace(info, worker_id="x", role=Role.MIXED, model=replace(info.model, **changes))
        assert f"its {name} is" in fleet.refusal(other)


def test_reserve_is_asked_again_only_of_who_was_asked():
    """Control: the honest answer of the same worker is taken."""
    stage = Stage()
    stage.submit("r", prompt=12)
    stage.finish_right()
    assert len(stage.kinds(Reserve)) == 1
    assert stage.world.router.counters["foreign_messages"] == 0
