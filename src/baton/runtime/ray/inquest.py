"""Asks the node of a worker that was lost whether its process has ended."""

import asyncio

import msgspec
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from baton.runtime.ray.orders import Finding, ProcessMark
from baton.runtime.ray.witness import testify

_PROOF_S = 3600.0
"""A node that has not come back by then is not waited for."""
_ANSWER_S = 60.0
_BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0)


class Inquest:
    """Of one process on the node with that address.

    That Ray takes a node for dead proves nothing: it may be out of reach, and its processes run.
    Only a process under the same kernel knows, so a node is asked once it is there again.
    """

    def __init__(self, mark: ProcessMark, host: str) -> None:
        self._mark = msgspec.msgpack.encode(mark)
        self._host = host
        self._strangers: set[str] = set()
        """Nodes with the same address that cannot know it."""

    async def hold(self) -> bool:
        """Whether its end is proven, as soon as it is; False when no proof came in time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _PROOF_S
        tries = 0
        while loop.time() < deadline_s:
            for node_id in await asyncio.to_thread(_nodes_at, self._host):
                if node_id not in self._strangers and await self._ask(node_id):
                    return True
            await asyncio.sleep(_BACKOFF_S[min(tries, len(_BACKOFF_S) - 1)])
            tries += 1
        return False

    async def _ask(self, node_id: str) -> bool:
        try:
            async with asyncio.timeout(_ANSWER_S):
                said = await asyncio.to_thread(_begin, node_id, self._mark)
                finding = Finding(await said)
        except (ray.exceptions.RayError, TimeoutError):
            return False  # it went away again, or is busy: the next try may tell
        if finding is Finding.ELSEWHERE:
            self._strangers.add(node_id)
        return finding is Finding.ENDED


def _nodes_at(host: str) -> list[str]:
    nodes = ray.nodes()
    return [one["NodeID"] for one in nodes if one["Alive"] and one["NodeManagerAddress"] == host]


def _begin(node_id: str, mark: bytes) -> "ray.ObjectRef[str]":
    strategy = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
    options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": strategy}
    return ray.remote(testify).options(**options).remote(mark)
