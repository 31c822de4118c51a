"""The control channel: order, foreign protocols refused by name, dead peers never block."""

import asyncio

import pytest
import zmq

from baton.core.messages import PeerDown
from baton.runtime import channel as channel_module
from baton.runtime.channel import COMPATIBILITY, ControlChannel, ipc_endpoint


@pytest.fixture
def channels(tmp_path):
    made = []

    def make(name: str, epoch: int = 1) -> ControlChannel:
        channel = ControlChannel(name, epoch, ipc_endpoint(tmp_path, f"{name}.{epoch}"))
        made.append(channel)
        return channel

    yield make
    for channel in made:
        channel.close()


async def test_messages_arrive_in_order_with_their_sender(channels):
    a, b = channels("a", 7), channels("b")
    a.connect("b", b.endpoint)
    for epoch in range(50):
        a.send("b", PeerDown(worker_id="w", epoch=epoch))
    got = [await asyncio.wait_for(b.receive(), 5) for _ in range(50)]
    assert [e.message.epoch for e in got] == list(range(50))
    assert {(e.sender_id, e.sender_epoch) for e in got} == {("a", 7)}


async def test_another_protocol_is_refused_by_name_and_the_next_message_still_arrives(
    channels, capsys
):
    b, a = channels("b"), channels("a")
    with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.connect(b.endpoint)
        stranger.send_multipart((b"baton/99 something", b"\x80"))
        stranger.send_multipart((b"baton/99 something", b"\x80"))
        stranger.send(b"one frame")
        stranger.send_multipart((COMPATIBILITY, b"not msgpack"))
        a.connect("b", b.endpoint)
        receiving = asyncio.create_task(b.receive())
        while sum(b.counters.values()) < 4:
            await asyncio.sleep(0.01)
        a.send("b", PeerDown(worker_id="w", epoch=1))
        assert (await asyncio.wait_for(receiving, 5)).message.epoch == 1
    assert b.counters == {"incompatible_messages": 3, "malformed_messages": 1}
    said = capsys.readouterr().err
    assert said.count("baton/99") == 1, "each foreign version is named once"
    assert "install the same kvbaton" in said


async def test_sending_to_nobody_is_counted_and_never_blocks(channels):
    a = channels("a")
    a.send("nobody", PeerDown(worker_id="w", epoch=1))
    a.connect("gone", "ipc:///tmp/baton-no-such-endpoint")
    for _ in range(1000):
        a.send("gone", PeerDown(worker_id="w", epoch=1))
    assert a.counters["unknown_peer"] == 1


async def test_what_an_inbox_would_not_take_is_dropped_at_the_sender(channels, monkeypatch):
    a, b = channels("a"), channels("b")
    a.connect("b", b.endpoint)
    monkeypatch.setattr(channel_module, "MAX_MESSAGE_NBYTES", 1000)
    a.send("b", PeerDown(worker_id="w" * 1000, epoch=1))
    a.send("b", PeerDown(worker_id="w", epoch=2))
    assert (await asyncio.wait_for(b.receive(), 5)).message.epoch == 2
    assert a.counters == {"oversized_messages": 1}


async def test_a_reconnected_peer_gets_only_what_is_sent_to_its_new_life(channels):
    a, old, new = channels("a"), channels("b", 1), channels("b", 2)
    a.connect("b", old.endpoint)
    a.send("b", PeerDown(worker_id="w", epoch=1))
    assert (await asyncio.wait_for(old.receive(), 5)).message.epoch == 1
    a.connect("b", new.endpoint)
    a.send("b", PeerDown(worker_id="w", epoch=2))
    assert (await asyncio.wait_for(new.receive(), 5)).message.epoch == 2
