"""The actor that keeps one life of one worker on its node: it starts, hears and ends a process."""

import asyncio
import os

import msgspec
from msgspec.structs import replace

from baton import __version__
from baton.errors import BatonError
from baton.runtime.cores import share_cores
from baton.runtime.curve import CurveKeys, mint_keys
from baton.runtime.dataplane import sweep_orphans
from baton.runtime.model_preparation import prepare_model
from baton.runtime.ray.child import Child
from baton.runtime.ray.orders import Prepared, SiteFacts, SiteOrder, Started
from baton.runtime.spec import WorkerSpec

_NEWS_S = 5.0
NUM_CALLS = 4
"""Calls that may run at once: one waits for news while others stop and kill."""


class Keeper:
    """Every call takes and returns bytes of `orders`. It ends with the driver, its worker with it.

    The worker's secret control key is made here, so that none crosses the network.
    """

    def __init__(self) -> None:
        self._keys: CurveKeys | None = None
        self._child: Child | None = None

    def facts(self, order_bytes: bytes) -> bytes:
        """Take this place: what it is like for that share of the node."""
        order = msgspec.msgpack.decode(order_bytes, type=SiteOrder)
        try:
            sweep_orphans()
            self._keys = mint_keys()
            cores: tuple[int, ...] = ()
            if order.pin_cores:
                cores = share_cores(order.num_workers, order.threads)[order.place]
        except (BatonError, OSError) as error:
            return _encoded(SiteFacts(version=__version__, error=f"{order.host}: {error}"))
        return _encoded(SiteFacts(cores=cores, public_key=self._keys.public, version=__version__))

    def prepare(self, name: str) -> bytes:
        """Have the model on this node."""
        try:
            path = asyncio.run(prepare_model(name, lambda stage, fraction: None))
        except BatonError as error:
            return _encoded(Prepared(error=str(error)))
        return _encoded(Prepared(path=str(path)))

    def start(self, spec_bytes: bytes) -> bytes:
        """Start the life that this describes."""
        spec = msgspec.json.decode(spec_bytes, type=WorkerSpec)
        spec = replace(spec, control_keys=self._keys, parent_pid=os.getpid())
        try:
            self._child = Child(msgspec.json.encode(spec), spec.config.worker.threads)
        except OSError as error:
            return _encoded(Started(error=str(error)))
        return _encoded(Started(mark=self._child.mark))

    def news(self) -> bytes:
        """What the worker has reported meanwhile; waits a few seconds for something to say."""
        assert self._child is not None
        return _encoded(self._child.news(_NEWS_S))

    def stop(self) -> None:
        """Let the worker end by itself."""
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """End the worker at once."""
        if self._child is not None:
            self._child.kill()


def _encoded(answer: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(answer)
