"""Whose state it is: nothing of one request, slot, tenant or life is taken for another one's."""

import itertools

import msgspec
import pytest

from baton.core.messages import Cancel, Prefill, Reserved, Seal
from tests.stage import MODES, Stage

DIRECTIONS = ("push", "pull")
PEER_WORDS = ("Present", "Authorized", "ChunksReady", "CreditReturn", "Seal", "SourceRelease")


@pytest.mark.parametrize("mode", MODES)
def test_first_token_of_another_request(mode):
    """Many at once, their words out of order: every client gets its own first token."""
    for shift in range(3):
        stage = Stage(**MODES[mode], blocks=256)
        turn = itertools.count(shift)
        stage.delay_us = lambda *_, turn=turn: ((next(turn) * 7 % 5) * 130,)
        for number in range(12):
            stage.submit(f"r{number}", prompt=6 + number % 5, first=number * 30)
        stage.finish_right()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_manifest_of_another_request(direction):
    """A manifest under another request's fence is refused by name, and both texts are right."""
    stage = Stage(direction=direction)
    stage.lose = lambda n, s, r, m: isinstance(m, Seal)
    stage.submit("a")
    stage.submit("b", first=100)
    stage.until(lambda: len({m.fence.request_id for m in stage.kinds(Seal)}) == 2)
    seals = {m.fence.request_id: m for m in stage.kinds(Seal)}
    stage.lose = lambda *_: False
    swapped = msgspec.structs.replace(seals["a"], manifest=seals["b"].manifest)
    stage.source._send(stage.destination.worker_id, swapped)
    stage.finish_right()
    (failed,) = stage.traced("attempt_failed")
    assert (failed[2].request_id, failed[2].data["reason"]) == ("a", "fence_mismatch")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("word", PEER_WORDS)
def test_late_word_about_the_last_user_of_a_slot(word, direction):
    """The same blocks serve request after request; a late word of one never speaks of the next."""
    for delay_us in (1_000, 3_000, 5_000, 7_000):
        stage = Stage(direction=direction, blocks=6, growth=0)
        stage.delay_us = lambda s, r, m, d=delay_us: (0, d) if type(m).__name__ == word else (0,)
        for number in range(4):
            stage.submit(f"r{number}", first=100 * number, max_tokens=2)
        stage.finish_right()
        assert not stage.traced("attempt_failed")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_late_bytes_for_the_last_user_of_a_slot(direction):
    """A write that lands after its request was given up hits no block of another request."""
    for number in range(1, 4):
        for delay_us in (500, 2_000, 50_000):
            stage = Stage(direction=direction, blocks=6, growth=0)
            stage.hit_chunk(number, "late", delay_us)
            stage.submit("gone")
            stage.until(lambda stage=stage, n=number: stage.mover.plane.num_moves == n)
            stage.world.cancel("gone", "disconnect")
            stage.submit("next", first=100)
            stage.finish()
            stage.assert_right("next")


def test_client_id_that_two_clients_share():
    """It is for logs: cancelling one of the two leaves the other alone."""
    for number in range(0, 40, 3):
        stage = Stage()
        for request_id in ("a", "b"):
            stage.submit(request_id, client_request_id="same")
        stage.steps(number)
        if "a" in stage.world.router.records:
            stage.world.cancel("a", "disconnect")
        stage.finish()
        stage.assert_right("b")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_transfer_id_that_is_not_unique(direction):
    """Reservations and transfers are minted, and never twice, in this or another life."""
    stage = Stage(direction=direction, prefill=2, decode=3)
    for number in range(8):
        stage.submit(f"r{number}", first=20 * number)
        stage.run_for(700)
        if number in (2, 5):
            stage.crash(stage.destination)
            stage.run_for(10_000)
    stage.finish_right()
    grants = [message.grant.fence for message in stage.kinds(Reserved)]
    assert len({fence.destination_epoch for fence in grants}) > 1
    by_transfer = {(fence.transfer_id, fence.reservation_id) for fence in grants}
    assert len({reservation for _, reservation in by_transfer}) == len(by_transfer)
    assert len({transfer for transfer, _ in by_transfer}) == len(by_transfer)
    assert all(fence.reservation_id > 0 and fence.request_id for fence in grants)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"tenant_id": "a"}, {"tenant_id": "b"}),
        ({"cache_salt": "a"}, {"cache_salt": "b"}),
        ({"tenant_id": "ab"}, {"tenant_id": "a", "cache_salt": "b"}),
        ({}, {"cache_salt": "a"}),
    ],
)
def test_key_without_tenant_or_salt(mine, theirs, mode):
    stage = Stage(**MODES[mode])
    for request_id, fields in (("first", mine), ("other", theirs), ("again", mine)):
        stage.submit(request_id, prompt=14, **fields)
        stage.finish_right()
    assert stage.end("other").usage.cached_tokens == 0
    assert stage.end("again").usage.cached_tokens == 12


def test_cleanup_of_another_attempt():
    """A cancel of an attempt that is over, repeated at any moment, leaves the new one alone."""
    for number in range(12):
        stage = Stage(prefill=2)
        stage.hit_batch(stage.source)
        stage.submit()
        stage.until(lambda stage=stage: stage.traced("attempt_failed"))
        old = stage.kinds(Prefill)[0].fence
        target = len(stage.sent) + number
        stage.until(
            lambda stage=stage, n=target: len(stage.sent) > n or not stage.world.router.records
        )
        for worker_id in (old.source_id, old.destination_id):
            message = Cancel(fence=old, reason="superseded")
            stage.as_router(worker_id, message)
        stage.finish_right()
        assert len(stage.traced("attempt_failed")) == 1
