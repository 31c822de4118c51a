"""The control channel over tcp: encrypted, known keys only, and each key speaks for one sender."""

import asyncio
import contextlib

import msgspec
import pytest
import pytest_asyncio
import zmq
from real_deployment import serving

from baton.config import BatonConfig
from baton.core.compatibility import COMPATIBILITY
from baton.core.ids import Role
from baton.core.messages import Envelope, PeerDown
from baton.errors import ConfigError, RemoteProtocolError
from baton.runtime.channel import MAX_MESSAGE_NBYTES, ControlChannel
from baton.runtime.curve import CurveKeys, mint_keys
from baton.runtime.issuer_key import mint_signer, published
from baton.runtime.spec import WorkerSpec

SECONDS = 5.0
TCP = "tcp://127.0.0.1:*"
WORD = PeerDown(worker_id="a-word-that-nobody-else-may-read", epoch=77)


@pytest_asyncio.fixture
async def channels():
    made: list[ControlChannel] = []

    def make(name: str, epoch: int = 1) -> tuple[ControlChannel, CurveKeys]:
        keys = mint_keys()
        channel = ControlChannel(name, epoch, TCP, keys)
        made.append(channel)
        return channel, keys

    yield make
    for channel in made:
        channel.close()


async def word(channel: ControlChannel) -> Envelope:
    return await asyncio.wait_for(channel.receive(), SECONDS)


async def counted(channel: ControlChannel, name: str, least: int = 1) -> None:
    """Read until a counter has grown; nothing must be delivered meanwhile."""
    receiving = asyncio.create_task(channel.receive())
    async with asyncio.timeout(SECONDS):
        while channel.counters[name] < least:
            await asyncio.sleep(0.01)
    assert not receiving.done()
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)


async def test_known_keys_talk_in_order_both_ways(channels):
    (a, a_keys), (b, b_keys) = channels("a", 7), channels("b")
    assert a.endpoint.startswith("tcp://127.0.0.1:") and a.endpoint != b.endpoint
    a.admit("b", 1, b_keys.public)
    b.admit("a", 7, a_keys.public)
    a.connect("b", b.endpoint, b_keys.public)
    b.connect("a", a.endpoint, a_keys.public)
    for epoch in range(20):
        a.send("b", PeerDown(worker_id="w", epoch=epoch))
    got = [await word(b) for _ in range(20)]
    assert [e.message.epoch for e in got] == list(range(20))
    assert {(e.sender_id, e.sender_epoch) for e in got} == {("a", 7)}
    b.send("a", WORD)
    assert (await word(a)).message == WORD
    assert not a.counters and not b.counters


async def test_an_unknown_key_is_refused_until_it_is_admitted(channels):
    (a, a_keys), (b, b_keys) = channels("a"), channels("b")
    a.connect("b", b.endpoint, b_keys.public)
    a.send("b", WORD)
    await counted(b, "unknown_keys")
    b.admit("c", 1, channels("c")[1].public)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(b.receive(), 0.3)
    b.admit("a", 1, a_keys.public)
    assert (await word(b)).message == WORD, "the handshake waits until its key is announced"


async def test_a_key_speaks_for_its_own_sender_and_life_only(channels):
    (a, a_keys), (b, b_keys) = channels("a", 7), channels("b")
    b.admit("another", 7, a_keys.public)
    a.connect("b", b.endpoint, b_keys.public)
    a.send("b", WORD)
    await counted(b, "forged_senders")
    b.withdraw("another", 7)
    b.admit("a", 8, a_keys.public)
    a.send("b", WORD)
    await counted(b, "forged_senders", 2)
    b.admit("a", 7, a_keys.public)
    a.send("b", WORD)
    assert (await word(b)).sender_id == "a"


async def test_a_key_of_one_process_is_refused_to_another_and_stays_its_own(channels):
    (a, a_keys), (b, b_keys) = channels("a", 7), channels("b")
    b.admit("a", 7, a_keys.public)
    with pytest.raises(RemoteProtocolError, match="c epoch 2 names the control key of a"):
        b.admit("c", 2, a_keys.public)
    assert b.key_of("a", 7) == a_keys.public and b.key_of("c", 2) == b""
    a.connect("b", b.endpoint, b_keys.public)
    a.send("b", WORD)
    assert (await word(b)).sender_id == "a"


@pytest.mark.parametrize("key", [b"\xff" * 40, "é".encode() * 20, b" " * 40, b"#" * 40])
async def test_what_is_no_key_is_refused_by_name_and_withdraws_nothing(channels, key):
    b, _ = channels("b")
    mine = mint_keys().public
    b.admit("a", 7, mine)
    with pytest.raises(RemoteProtocolError, match="a epoch 8 has a control key that is not Z85"):
        b.admit("a", 8, key)
    assert b.key_of("a", 7) == mine


async def test_an_early_handshake_survives_a_crowd_of_unknown_keys(channels):
    (a, a_keys), (b, b_keys) = channels("a"), channels("b")
    a.connect("b", b.endpoint, b_keys.public)
    a.send("b", WORD)
    await counted(b, "unknown_keys")
    with zmq.Context() as context, contextlib.ExitStack() as crowd:
        for _ in range(100):
            stranger = crowd.enter_context(context.socket(zmq.PUSH))
            stranger.setsockopt(zmq.LINGER, 0)
            keys = mint_keys()
            stranger.curve_serverkey = b_keys.public
            stranger.curve_publickey, stranger.curve_secretkey = keys.public, keys.secret
            stranger.connect(b.endpoint)
        await counted(b, "unknown_keys", 101)
        b.admit("a", 1, a_keys.public)
        # Long before its handshake times out and is tried again.
        assert (await asyncio.wait_for(b.receive(), 2)).message == WORD


async def test_an_inbox_buffers_no_frame_of_any_size(channels):
    b, _ = channels("b")
    host, port = b.endpoint.removeprefix("tcp://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32))
    assert len(await asyncio.wait_for(reader.readexactly(64), SECONDS)) == 64
    writer.write(b"\x06" + (MAX_MESSAGE_NBYTES + 1).to_bytes(8, "big"))  # a long command
    with contextlib.suppress(ConnectionResetError):  # long before the handshake times out
        assert await asyncio.wait_for(reader.read(1), 2) == b""
    writer.close()


async def test_the_key_of_a_dead_life_opens_nothing(channels):
    (a, a_keys), (b, b_keys) = channels("a"), channels("b")
    b.admit("a", 1, a_keys.public)
    a.connect("b", b.endpoint, b_keys.public)
    a.send("b", WORD)
    assert (await word(b)).message == WORD
    b.withdraw("a", 1)
    a.send("b", WORD)
    await counted(b, "withdrawn_senders")
    a.connect("b", b.endpoint, b_keys.public)
    await counted(b, "unknown_keys")
    (new, new_keys), late = channels("a", 3), channels("a", 2)[1]
    b.admit("a", 2, late.public)
    b.admit("a", 3, new_keys.public)
    b.withdraw("a", 2)
    new.connect("b", b.endpoint, b_keys.public)
    new.send("b", WORD)
    assert (await word(b)).sender_epoch == 3, "a late word of an old death takes no newer key"


async def test_a_client_without_encryption_is_refused(channels):
    (a, a_keys), (b, b_keys) = channels("a"), channels("b")
    b.admit("a", 1, a_keys.public)
    forged = msgspec.msgpack.encode(Envelope(sender_id="a", sender_epoch=1, message=WORD))
    with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(b.endpoint)
        stranger.send_multipart((COMPATIBILITY, forged))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(b.receive(), 0.5)
    a.connect("b", b.endpoint, b_keys.public)
    a.send("b", WORD)
    assert (await word(b)).message == WORD, "the inbox still serves those it knows"


async def test_who_listens_on_the_wire_reads_nothing(channels):
    (a, a_keys), (b, b_keys) = channels("a"), channels("b")
    b.admit("a", 1, a_keys.public)
    seen = bytearray()
    host, port = b.endpoint.removeprefix("tcp://").split(":")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            seen.extend(data)
            writer.write(data)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(reader, onward[1]))
                group.create_task(pump(onward[0], writer))
        finally:
            onward[1].close()
            writer.close()

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    proxy = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    a.connect("b", proxy, b_keys.public)
    a.send("b", WORD)
    assert (await word(b)).message == WORD
    assert len(seen) > 300, "the message did pass the proxy"
    for secret in (WORD.worker_id.encode(), b"peer_down", COMPATIBILITY, b"sender_id"):
        assert secret not in seen
    a.disconnect("b")
    server.close()


async def test_tcp_without_keys_and_a_peer_without_a_key_are_refused(channels):
    with pytest.raises(ConfigError, match="needs CURVE keys"):
        ControlChannel("a", 1, TCP)
    a, _ = channels("a")
    with pytest.raises(RemoteProtocolError, match="control key of 0 bytes"):
        a.admit("b", 1, b"")
    with pytest.raises(RemoteProtocolError, match="no way to b"):
        a.connect("b", "tcp://127.0.0.1:1", b"")


async def test_an_address_of_another_machine_is_refused_by_name():
    with pytest.raises(ConfigError, match="control_host"):
        ControlChannel("a", 1, "tcp://192.0.2.1:*", mint_keys())


def test_a_secret_key_shows_in_no_text():
    keys = mint_keys()
    spec = msgspec.structs.replace(_spec(), control_keys=keys)
    for text in (repr(keys), str(spec), repr(list(keys.__rich_repr__())), f"{spec!r}"):
        assert keys.secret.decode() not in text
    told = msgspec.json.decode(msgspec.json.encode(spec), type=WorkerSpec)
    assert told.control_keys == keys, "the worker itself is told"


def _spec() -> WorkerSpec:
    return WorkerSpec(
        worker_id="w",
        ordinal=0,
        epoch=1,
        role=Role.MIXED,
        cores=(),
        model_path="",
        endpoint=TCP,
        router_endpoint=TCP,
        issuer=published(mint_signer()),
        config=BatonConfig(),
    )


@pytest.mark.slow
async def test_a_deployment_over_tcp_answers_as_one_over_unix_sockets():
    bodies = [
        {"prompt": [(n * 31 + i) % 250 for i in range(length)], "max_tokens": 24, "seed": n}
        for n, length in enumerate((1, 16, 100, 700))
    ]

    async def answers(control: str) -> list[object]:
        async with serving(f"cluster.control={control}") as served:
            view = served.view("decode-1")
            assert view.info.endpoint.startswith(f"{control}://")
            assert bool(view.info.control_key) == (control == "tcp")
            got = [await served.stream(body) for body in bodies]
            assert await served.until_idle(SECONDS) == []
            with open(f"/proc/{view.info.pid}/cmdline", "rb") as line:
                assert b"control" not in line.read()
            return got

    over_tcp, over_ipc = await answers("tcp"), await answers("ipc")
    assert over_tcp == over_ipc
    assert all(answer.finish_reason == "length" for answer in over_tcp)
