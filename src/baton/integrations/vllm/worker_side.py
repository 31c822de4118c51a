"""The workers' half of the connector: vLLM's hooks on one side, the rank's mover on the other."""

import secrets
import time
from collections.abc import Sequence

import msgspec

from baton.errors import ConfigError
from baton.integrations.vllm.info import ConnectorInfo
from baton.integrations.vllm.keys import MemberKeys
from baton.integrations.vllm.legs import Legs
from baton.integrations.vllm.link import Link
from baton.integrations.vllm.memory import BorrowedArena, LayerView, cache_map
from baton.integrations.vllm.messages import CacheMap, Pair
from baton.integrations.vllm.mover import Mover, plane_id
from baton.integrations.vllm.orders import HoldEnded, LoadEnded, StepOrders, Stream
from baton.integrations.vllm.process import this_process
from baton.integrations.vllm.settings import Settings
from baton.runtime.dataplane.nixl import NixlDataPlane

_IDLE_WAIT_S = 0.004
"""How long a step without rows waits for the mover: vLLM would spin, on the core that it needs."""


def new_epoch() -> int:
    """Of a life that begins now; later lives have higher ones."""
    return time.time_ns() // 1_000_000


class WorkerSide:
    """One rank. Made once its cache memory is there."""

    def __init__(
        self,
        info: ConnectorInfo,
        settings: Settings,
        keys: MemberKeys,
        layers: Sequence[LayerView],
    ) -> None:
        """Raises ConfigError for a cache that cannot move, or a port that is not free."""
        address, nbytes, cache = cache_map(layers)
        _check_blocks(info, cache)
        self._indexes = {layer.name: index for index, layer in enumerate(layers)}
        member = info.member
        plane = NixlDataPlane(move_timeout_ms=settings.move_timeout_ms, host=settings.host)
        name = plane_id(member.worker_id, info.rank)
        arena = BorrowedArena(name, member.epoch, address, nbytes)
        hello = Pair(info=info, region=plane.register(arena), cache=cache, process=this_process())
        legs = Legs(info, settings, keys.verifier(), secrets.randbits(40) << 22)
        endpoint = member.endpoints[info.rank]
        self._mover = Mover(legs, hello, lambda: Link(endpoint, keys), plane)
        self._is_idle = False
        self._streams = False
        self._failed_blocks: set[int] = set()

    def begin_step(self, payload: bytes) -> None:
        """The scheduler's orders, before the step computes anything."""
        step = msgspec.msgpack.decode(payload, type=StepOrders)
        self._is_idle = step.is_idle
        self._streams = any(isinstance(order, Stream) for order in step.orders)
        if step.orders:
            self._mover.order(step)

    def layer_written(self, name: str) -> None:
        """The step's rows of a layer are in the cache."""
        if self._streams:
            self._mover.layer(self._indexes[name])

    def end_step(self) -> None:
        """The step's rows of every layer are in the cache."""
        if self._streams:
            self._streams = False
            self._mover.step_end()

    def take_ended(self) -> tuple[set[str], set[str], set[str]]:
        """Requests whose blocks nobody reads any more, loads that are over, and of these failed."""
        sent: set[str] = set()
        received: set[str] = set()
        failed: set[str] = set()
        for ended in self._mover.take(_IDLE_WAIT_S if self._is_idle else 0.0):
            if isinstance(ended, HoldEnded):
                sent.add(ended.vllm_id)
                continue
            assert isinstance(ended, LoadEnded)
            received.add(ended.vllm_id)
            if not ended.is_published:
                failed.add(ended.vllm_id)
                self._failed_blocks.update(ended.failed_blocks)
        return sent, received, failed

    def take_failed_blocks(self) -> set[int]:
        """Blocks of failed loads since the last call: what lies there is not data."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def close(self) -> None:
        """End the rank's thread; peers notice by themselves."""
        self._mover.close()


def _check_blocks(info: ConnectorInfo, cache: CacheMap) -> None:
    if cache.block_nbytes != info.layout.layer_block_nbytes:
        raise ConfigError(
            f"a cache block of one layer has {cache.block_nbytes} bytes, and the model's shape "
            f"says {info.layout.layer_block_nbytes}: this kind of cache is not supported"
        )
