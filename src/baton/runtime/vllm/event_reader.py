"""Reads one server's K/V events from its publisher, and asks again for what was lost."""

import asyncio
import logging

import msgspec
import zmq
import zmq.asyncio

from baton.runtime.vllm.events import SequenceCheck, read_batch
from baton.runtime.vllm.metrics import VllmMetrics
from baton.runtime.vllm.prefixes import Prefixes
from baton.runtime.vllm.servers import Server

logger = logging.getLogger("baton.vllm")

REPLAY_S = 5.0
_END = (-1).to_bytes(8, "big", signed=True)
_HIGH_WATER = 100_000


class EventReader:
    """Follows a server until it is cancelled."""

    def __init__(self, server: Server, prefixes: Prefixes, metrics: VllmMetrics) -> None:
        self._server = server
        self._prefixes = prefixes
        self._metrics = metrics
        self._check = SequenceCheck()

    def restart(self) -> None:
        """A new life of the server counts from 0; what it told before this is asked for."""
        self._check = SequenceCheck()

    async def run(self) -> None:
        """Read until cancelled."""
        context = zmq.asyncio.Context.instance()
        socket = context.socket(zmq.SUB)
        socket.set_hwm(_HIGH_WATER)
        socket.subscribe(b"")
        socket.connect(self._server.address.events)
        try:
            while True:
                frames = await socket.recv_multipart()
                await self._take(frames)
        finally:
            socket.close(linger=0)

    async def _take(self, frames: list[bytes]) -> None:
        if len(frames) != 3 or len(frames[1]) != 8 or not self._server.epoch:
            self._count("ignored")
            return
        number = int.from_bytes(frames[1], "big")
        verdict = self._check.take(number)
        if verdict == "old":
            self._count("old")
            return
        if verdict == "restart":
            # Its process is another one; the monitor will find out as well.
            self._count("restart")
            self._prefixes.clear(self._server.server_id)
        if verdict == "gap":
            self._count("gap")
            await self._catch_up(number)
        self._apply(frames[2])

    async def _catch_up(self, number: int) -> None:
        """Replay what is missing before `number`; where that fails nothing is claimed any more."""
        first = max(0, self._check.expected)
        try:
            async with asyncio.timeout(REPLAY_S):
                missing = await self._replayed(first, number)
        except TimeoutError:
            missing = None
        if missing is None:
            self._count("cleared")
            self._prefixes.clear(self._server.server_id)
        else:
            self._count("replayed")
            for payload in missing:
                self._apply(payload)
        self._check.skip_to(number + 1)

    async def _replayed(self, first: int, end: int) -> list[bytes] | None:
        """Batches from `first` to before `end`; None where the server does not have them all."""
        if not self._server.address.replay:
            return None
        socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        socket.connect(self._server.address.replay)
        payloads: dict[int, bytes] = {}
        try:
            await socket.send_multipart([b"", first.to_bytes(8, "big")])
            while True:
                frames = await socket.recv_multipart()
                if len(frames) != 4 or frames[2] == _END:
                    break
                payloads[int.from_bytes(frames[2], "big")] = frames[3]
        finally:
            socket.close(linger=0)
        if any(number not in payloads for number in range(first, end)):
            return None
        return [payloads[number] for number in range(first, end)]

    def _apply(self, payload: bytes) -> None:
        try:
            changes, unknown = read_batch(payload)
        except msgspec.DecodeError as error:
            logger.warning("%s: a batch of events is not understood: %s",
                           self._server.server_id, error)  # fmt: skip
            self._count("malformed")
            self._prefixes.clear(self._server.server_id)
            return
        for change in changes:
            self._prefixes.apply(self._server.server_id, change)
            self._count(type(change).__name__)
        if unknown:
            self._metrics.events[self._server.server_id, "unknown"] += unknown

    def _count(self, kind: str) -> None:
        self._metrics.events[self._server.server_id, kind] += 1
