"""What a worker says of itself is checked by the router and by its peers before it is believed."""

import asyncio

import msgspec
import pytest
from introductions import NUM_BLOCKS, true_info, true_region
from lone_worker import lone_worker, neighbour

from baton.config import load_config
from baton.core.layout import ModelInfo
from baton.core.messages import Hello, Refused, Welcome
from baton.core.snapshot import WorkerInfo
from baton.errors import RemoteProtocolError
from baton.runtime.channel import ControlChannel, ipc_endpoint
from baton.runtime.curve import mint_keys
from baton.runtime.dataplane import ArenaDescriptor
from baton.runtime.introduction import check_introduction
from baton.runtime.router_host import RouterHost

SECONDS = 5.0
ENDPOINT = "ipc:///tmp/baton-none"


def bent(**changes) -> WorkerInfo:
    return msgspec.structs.replace(true_info("b", 2, ENDPOINT), **changes)


def region(worker_id: str = "b", epoch: int = 2, **changes) -> bytes:
    return msgspec.msgpack.encode(msgspec.structs.replace(true_region(worker_id, epoch), **changes))


SMALL = ArenaDescriptor(name="baton-none", nbytes=64, worker_id="b", epoch=2)


def in_stages(pp_size: int) -> ModelInfo:
    model = bent().model
    return msgspec.structs.replace(
        model, layout=msgspec.structs.replace(model.layout, pp_size=pp_size)
    )


WRONG = {
    "a reserved name": (bent(worker_id="router"), "reserved"),
    "no region": (bent(region=b""), "not the descriptor"),
    "a region of nonsense": (bent(region=b"\xffjunk"), "not the descriptor"),
    "a region of nested arrays": (bent(region=b"\x81\xa1x" + b"\x91" * 5000), "not the descriptor"),
    "another worker's region": (bent(region=region("a", 2)), "is that of a epoch 2"),
    "another life's region": (bent(region=region("b", 1)), "is that of b epoch 1"),
    "a pool larger than its region": (bent(num_blocks=NUM_BLOCKS + 1), "num_blocks 9"),
    "no pool": (bent(num_blocks=0), "num_blocks 0"),
    "a region past its arena": (bent(region=region(offset=8)), "leaves its arena"),
    "memory of fewer stages than its layout": (
        bent(model=in_stages(2)),
        "is that of 1 pipeline stages, and its layout has pp_size 2",
    ),
    "a stage without room": (
        bent(model=in_stages(2), region=region(stages=(SMALL,))),
        "stage 1 of the region .* has 64 bytes, which is no room for its num_blocks 8 of 64",
    ),
    "another kind of endpoint": (bent(endpoint="tcp://127.0.0.1:1"), "cluster.control"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_agree_is_refused_by_name(name):
    info, text = WRONG[name]
    with pytest.raises(RemoteProtocolError, match=text):
        check_introduction(info, control="ipc")


def test_what_agrees_is_believed():
    assert check_introduction(bent(), control="ipc") == true_region("b", 2)


class Meeting:
    """A router host, and peers that speak to it."""

    def __init__(self, host: RouterHost, tmp_path, control: str) -> None:
        self.host = host
        self._tmp_path = tmp_path
        self._control = control
        self._made: list[ControlChannel] = []

    def peer(self, worker_id: str, epoch: int) -> tuple[ControlChannel, bytes]:
        """A channel of a worker that the supervisor let in."""
        keys = mint_keys() if self._control == "tcp" else None
        path = ipc_endpoint(self._tmp_path, f"{worker_id}.{epoch}")
        endpoint = "tcp://127.0.0.1:*" if keys else path
        channel = ControlChannel(worker_id, epoch, endpoint, keys)
        self._made.append(channel)
        key = keys.public if keys else b""
        self.host.door.admit(worker_id, epoch, key)
        channel.admit("router", 0, self.host.door.key)
        channel.connect("router", self.host.door.endpoint, self.host.door.key)
        return channel, key

    async def close(self) -> None:
        """Close everything."""
        for channel in self._made:
            channel.close()
        await self.host.close()


@pytest.fixture(params=["ipc", "tcp"])
async def meeting(tmp_path, request):
    config = load_config(None, ["model.name=tiny", f"cluster.control={request.param}"])
    meeting = Meeting(RouterHost(config, tmp_path), tmp_path, request.param)
    yield meeting
    await meeting.close()


async def answer(channel: ControlChannel) -> object:
    return (await asyncio.wait_for(channel.receive(), SECONDS)).message


async def test_the_router_refuses_a_region_of_another_and_hears_the_next(meeting, capsys):
    b, key = meeting.peer("b", 2)
    info = true_info("b", 2, b.endpoint, key)
    for _ in range(2):
        b.send("router", Hello(info=msgspec.structs.replace(info, region=region("a", 2))))
        said = await answer(b)
        assert isinstance(said, Refused) and "is that of a epoch 2" in said.reason
    assert list(meeting.host.node.fleet) == []
    assert meeting.host.host_counters()["channel_refused_hellos"] == 2
    assert capsys.readouterr().err.count("refused a hello") == 1
    b.send("router", Hello(info=info))
    assert await answer(b) == Welcome(epoch=2)


async def test_the_router_refuses_a_key_that_the_supervisor_did_not_mint(meeting):
    b, key = meeting.peer("b", 2)
    other = meeting.host.door.key or b"k" * 40
    b.send("router", Hello(info=true_info("b", 2, b.endpoint, other)))
    said = await answer(b)
    assert isinstance(said, Refused) and "control_key" in said.reason
    assert list(meeting.host.node.fleet) == []
    b.send("router", Hello(info=true_info("b", 2, b.endpoint, key)))
    assert await answer(b) == Welcome(epoch=2)


async def test_nobody_joins_under_the_name_of_the_router(meeting):
    forged, key = meeting.peer("router", 5)
    b, b_key = meeting.peer("b", 2)
    forged.send("router", Hello(info=true_info("router", 5, forged.endpoint, key)))
    async with asyncio.timeout(SECONDS):
        while not meeting.host.host_counters().get("channel_refused_hellos"):
            await asyncio.sleep(0.01)
    b.send("router", Hello(info=true_info("b", 2, b.endpoint, b_key)))
    assert await answer(b) == Welcome(epoch=2)
    assert [view.info.worker_id for view in meeting.host.node.fleet] == ["b"]


async def test_a_worker_outlives_every_introduction_and_maps_the_true_one(tmp_path, capsys):
    async with lone_worker(tmp_path) as worker, neighbour("b") as b:
        told = worker.peer(b, ipc_endpoint(tmp_path, "b"))
        for number, (info, _) in enumerate(WRONG.values()):
            worker.tell_of(msgspec.structs.replace(info, epoch=10 + number))
        worker.tell_of(msgspec.structs.replace(told, region=b"garbage"))
        worker.tell_of(msgspec.structs.replace(told, worker_id="w0"))
        worker.tell_of(msgspec.structs.replace(told, endpoint="ipc://a\0b"))
        worker.tell_of(told)
        await worker.until_mapped("b")
        assert not worker.running.done()
        assert list(worker.host._peers) == ["b"]
    said = capsys.readouterr().err
    for text in ("reserved", "not the descriptor", "the name of this worker"):
        assert text in said


async def test_a_region_that_names_another_worker_does_not_take_its_place(tmp_path):
    async with lone_worker(tmp_path) as worker, neighbour("a") as a, neighbour("b") as b:
        worker.tell_of(worker.peer(a, ipc_endpoint(tmp_path, "a")))
        await worker.until_mapped("a")
        arena = msgspec.structs.replace(b.arena, worker_id="a", epoch=2)
        false = msgspec.structs.replace(b, arena=arena)
        true = worker.peer(b, ipc_endpoint(tmp_path, "b"))
        worker.tell_of(msgspec.structs.replace(true, region=msgspec.msgpack.encode(false)))
        worker.tell_of(true)
        await worker.until_mapped("b")
        assert worker.host._plane._peers["a"].descriptor == a
