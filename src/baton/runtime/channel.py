"""The control channel: typed messages over ZeroMQ, compatibility checked before decoding."""

import contextlib
import os
import sys
from collections import Counter
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from baton.core.digest import digest
from baton.core.messages import PROTOCOL_VERSION, Envelope, Message

_HIGH_WATER_MARK = 65_536
_LINGER_MS = 500
_MAX_REFUSED = 16
COMPATIBILITY = f"baton/{PROTOCOL_VERSION} {digest(msgspec.json.schema(Envelope))}".encode()
"""First frame of every message. The digest covers every field of every message type."""


class ControlChannel:
    """One inbox, and an outbox per peer. Sending never blocks; a full outbox drops and counts."""

    def __init__(self, process_id: str, epoch: int, endpoint: str) -> None:
        self.endpoint = endpoint
        self.counters: Counter[str] = Counter()
        self._process_id = process_id
        self._epoch = epoch
        self._context = zmq.Context()
        self._inbox = zmq.asyncio.Context.shadow(self._context).socket(zmq.PULL)
        self._inbox.set_hwm(_HIGH_WATER_MARK)
        self._inbox.bind(endpoint)
        self._outboxes: dict[str, zmq.Socket[bytes]] = {}
        self._refused: set[bytes] = set()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Envelope)

    def connect(self, peer_id: str, endpoint: str) -> None:
        """Open (or reopen, after a restart of the peer) the way to a peer."""
        self.disconnect(peer_id)
        outbox = self._context.socket(zmq.PUSH)
        outbox.set_hwm(_HIGH_WATER_MARK)
        outbox.setsockopt(zmq.LINGER, _LINGER_MS)
        outbox.connect(endpoint)
        self._outboxes[peer_id] = outbox

    def disconnect(self, peer_id: str) -> None:
        """Drop the way to a peer and whatever was not sent."""
        outbox = self._outboxes.pop(peer_id, None)
        if outbox is not None:
            outbox.close(linger=0)

    def send(self, peer_id: str, message: Message) -> None:
        """Queue a message; to an unknown or stuck peer it is dropped, which retries repair."""
        outbox = self._outboxes.get(peer_id)
        if outbox is None:
            self.counters["unknown_peer"] += 1
            return
        envelope = Envelope(sender_id=self._process_id, sender_epoch=self._epoch, message=message)
        try:
            outbox.send_multipart((COMPATIBILITY, self._encoder.encode(envelope)), zmq.NOBLOCK)
        except zmq.Again:
            self.counters["outbox_full"] += 1

    async def receive(self) -> Envelope:
        """The next message of this protocol version; others are counted and dropped."""
        while True:
            frames = await self._inbox.recv_multipart()
            if len(frames) != 2 or frames[0] != COMPATIBILITY:
                self._refuse(frames[0])
                continue
            try:
                return self._decoder.decode(frames[1])
            except msgspec.DecodeError:
                self.counters["malformed_messages"] += 1

    def _refuse(self, header: bytes) -> None:
        """Say once, by name, that a peer speaks another version of the protocol."""
        self.counters["incompatible_messages"] += 1
        if header not in self._refused and len(self._refused) < _MAX_REFUSED:
            self._refused.add(header)
            print(
                f"{self._process_id}: refused a message of protocol {header[:80]!r}; this process "
                f"speaks {COMPATIBILITY.decode()!r}: install the same kvbaton on every worker",
                file=sys.stderr,
            )

    def close(self) -> None:
        """Close every socket; what was queued gets a moment to leave."""
        for outbox in self._outboxes.values():
            outbox.close()
        self._outboxes.clear()
        self._inbox.close(linger=0)
        self._context.term()
        if self.endpoint.startswith("ipc://"):
            with contextlib.suppress(OSError):
                os.unlink(self.endpoint.removeprefix("ipc://"))


def ipc_endpoint(runtime_dir: Path, name: str) -> str:
    """A Unix-socket endpoint inside the private runtime directory."""
    return f"ipc://{runtime_dir}/{name}"
