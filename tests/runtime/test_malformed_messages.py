"""What no peer should send: it is counted and dropped, and the next message is heard."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
import zmq
from introductions import true_info

from baton.config import load_config
from baton.core.compatibility import COMPATIBILITY
from baton.core.messages import Envelope, Hello, PeerDown
from baton.core.snapshot import WorkerInfo
from baton.errors import BatonError, ConfigError
from baton.runtime.channel import ControlChannel, ipc_endpoint
from baton.runtime.deployment import Deployment
from baton.runtime.router_host import RouterHost

SECONDS = 5.0


def with_num_layers(num_layers: int) -> bytes:
    info: WorkerInfo = true_info("w0", 1, "ipc:///nowhere")
    raw = msgspec.to_builtins(
        Envelope(sender_id="w0", sender_epoch=1, message=Hello(info=info)), builtin_types=(bytes,)
    )
    raw["message"]["info"]["model"]["layout"]["num_layers"] = num_layers
    return msgspec.msgpack.encode(raw)


def nested_in_an_unknown_field() -> bytes:
    good = Envelope(sender_id="a", sender_epoch=1, message=PeerDown(worker_id="w", epoch=1))
    raw = msgspec.msgpack.encode(good)
    assert raw[0] == 0x83, "a map of three"
    return b"\x84\xa1x" + b"\x91" * 100_000 + b"\x00" + raw[1:]


MALFORMED = {
    "a layout without layers": with_num_layers(0),
    "deep nesting": nested_in_an_unknown_field(),
    "arrays only": b"\x91" * 100_000,
    "nothing": b"",
}


def test_these_do_raise_other_errors_than_those_of_the_decoder():
    decoder = msgspec.msgpack.Decoder(Envelope)
    with pytest.raises(ConfigError):
        decoder.decode(MALFORMED["a layout without layers"])
    with pytest.raises(RecursionError):
        decoder.decode(MALFORMED["deep nesting"])
    assert decoder.decode(with_num_layers(2)).sender_id == "w0", "the rest of it is right"


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_message_is_counted_and_the_next_one_is_heard(tmp_path, name):
    inbox = ControlChannel("b", 1, ipc_endpoint(tmp_path, "b"))
    good = Envelope(sender_id="a", sender_epoch=1, message=PeerDown(worker_id="w", epoch=1))
    try:
        with zmq.Context() as context, context.socket(zmq.PUSH) as peer:
            peer.connect(inbox.endpoint)
            peer.send_multipart((COMPATIBILITY, MALFORMED[name]))
            peer.send_multipart((COMPATIBILITY, msgspec.msgpack.encode(good)))
            assert await asyncio.wait_for(inbox.receive(), SECONDS) == good
        assert inbox.counters == {"malformed_messages": 1}
    finally:
        inbox.close()


@pytest.fixture
async def router(tmp_path):
    host = RouterHost(load_config(None, ["model.name=tiny"]), tmp_path)
    yield host
    await host.close()


def deployed(router: RouterHost, tmp_path) -> Deployment:
    supervisor = SimpleNamespace(
        failure=asyncio.get_running_loop().create_future(),
        workers=[],
        kill=lambda worker_id: None,
        role_of=lambda worker_id: None,
    )
    return Deployment(router, supervisor, tmp_path, tmp_path)


async def test_a_router_that_hears_nothing_any_more_fails_its_deployment(
    router, tmp_path, monkeypatch
):
    deployment = deployed(router, tmp_path)
    watching = asyncio.create_task(deployment.watch())

    def broken(event, now_us):
        raise KeyError("a bug of the node")

    monkeypatch.setattr(router.node, "handle", broken)
    peer = ControlChannel("w0", 1, ipc_endpoint(tmp_path, "w0"))
    try:
        peer.connect("router", router.door.endpoint)
        peer.send("router", PeerDown(worker_id="w", epoch=1))
        with pytest.raises(BatonError, match="the router ended: KeyError: 'a bug of the node'"):
            await asyncio.wait_for(watching, SECONDS)
        with pytest.raises(BatonError, match="the router ended"):
            await deployment.wait_ready(SECONDS)
    finally:
        peer.close()


async def test_a_router_whose_time_stands_still_fails_its_deployment(router, tmp_path, monkeypatch):
    def broken(event, now_us):
        raise KeyError("a bug of the node")

    monkeypatch.setattr(router.node, "handle", broken)
    with pytest.raises(KeyError):
        router._tick()
    with pytest.raises(BatonError, match="the router ended: KeyError"):
        await asyncio.wait_for(deployed(router, tmp_path).watch(), SECONDS)
