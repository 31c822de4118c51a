"""One real worker host with the tiny model, and the router's end of its control channel."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from baton.config import load_config
from baton.core.ids import Role
from baton.core.messages import Hello, PeerUp
from baton.core.snapshot import WorkerInfo
from baton.engine.engine import Engine
from baton.engine.loader import resolve_model
from baton.runtime.channel import ControlChannel, ipc_endpoint
from baton.runtime.dataplane import Arena, RegionDescriptor, ShmDataPlane
from baton.runtime.faults import open_plane
from baton.runtime.issuer_key import mint_signer, published
from baton.runtime.spec import WorkerSpec
from baton.runtime.worker_host import WorkerHost

NUM_BLOCKS = 64
SECONDS = 10.0


class LoneWorker:
    """The host under test, its running task, and what the router would hold."""

    def __init__(
        self, host: WorkerHost, engine: Engine, router: ControlChannel, running: asyncio.Task[str]
    ) -> None:
        self.host = host
        self.engine = engine
        self.router = router
        self.running = running
        self.info: WorkerInfo

    async def meet(self) -> None:
        """Wait for the worker's hello and open the way to it."""
        hello = await self.next(Hello)
        assert isinstance(hello, Hello)
        self.info = hello.info
        self.router.connect(self.info.worker_id, self.info.endpoint)

    async def next(self, kind: type) -> object:
        """The next message of a kind."""
        async with asyncio.timeout(SECONDS):
            while not isinstance(message := (await self.router.receive()).message, kind):
                pass
            return message

    def tell_of(self, info: WorkerInfo) -> None:
        """Announce a peer."""
        self.router.send(self.info.worker_id, PeerUp(info=info))

    async def until_mapped(self, worker_id: str) -> None:
        """Wait until the worker has mapped a peer."""
        async with asyncio.timeout(SECONDS):
            while worker_id not in self.host._peers:
                await asyncio.sleep(0.01)

    def peer(self, region: RegionDescriptor, endpoint: str) -> WorkerInfo:
        """A true introduction of a peer whose region this is."""
        return msgspec.structs.replace(
            self.info,
            worker_id=region.arena.worker_id,
            epoch=region.arena.epoch,
            endpoint=endpoint,
            num_blocks=1,
            region=msgspec.msgpack.encode(region),
        )


@asynccontextmanager
async def lone_worker(tmp_path: Path) -> AsyncIterator[LoneWorker]:
    """Run a decode worker in this process, over Unix sockets."""
    config = load_config(None, ["model.name=tiny"])
    path = resolve_model("tiny")
    engine = Engine.load(
        path,
        config=config.model,
        block_size=config.worker.block_size,
        progress=lambda stage, fraction: None,
    )
    router = ControlChannel("router", 0, ipc_endpoint(tmp_path, "router"))
    spec = WorkerSpec(
        worker_id="w0",
        ordinal=0,
        epoch=1,
        role=Role.DECODE,
        cores=(),
        model_path=str(path),
        endpoint=ipc_endpoint(tmp_path, "w0"),
        router_endpoint=router.endpoint,
        issuer=published(mint_signer()),
        config=config,
    )
    plane = open_plane(spec.config, spec.faults, spec.worker_id)
    host = WorkerHost(spec, engine, NUM_BLOCKS, plane)
    running = asyncio.create_task(host.run())
    worker = LoneWorker(host, engine, router, running)
    try:
        await worker.meet()
        yield worker
    finally:
        host.stop()
        with contextlib.suppress(Exception):
            await running
        router.close()


@asynccontextmanager
async def neighbour(worker_id: str) -> AsyncIterator[RegionDescriptor]:
    """The data plane of another worker, alone."""
    arena = Arena.create(worker_id, 1 << 20, epoch=1)
    plane = ShmDataPlane()
    try:
        yield plane.register(arena)
    finally:
        plane.close()
        arena.close()
        assert not os.path.exists(f"/dev/shm/{arena.descriptor.name}")
