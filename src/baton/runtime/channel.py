"""The control channel: typed messages over ZeroMQ, compatibility checked before decoding.

Within a host it is a Unix socket in a private folder. Over tcp it is always encrypted, and a
message counts only if its sender is the one that the connection's key belongs to.
"""

import contextlib
import os
from collections import Counter
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from baton.core.cluster_settings import ClusterConfig
from baton.core.compatibility import COMPATIBILITY
from baton.core.messages import Envelope, Message
from baton.errors import ConfigError, RemoteProtocolError
from baton.runtime.curve import CurveKeys, Doorkeeper
from baton.runtime.notice import notice

_HIGH_WATER_MARK = 65_536
_LINGER_MS = 500
_HANDSHAKE_MS = 5_000
"""How long one handshake over tcp may wait for its key to be announced; then the peer tries again.
"""
_MAX_REFUSED = 16
MAX_MESSAGE_NBYTES = 64 << 20
"""Of one frame. A seal of a million tokens in chunks of one block needs less; without a bound, who
can reach an inbox over tcp could have it buffer anything before its key is even looked at.
"""


class ControlChannel:
    """One inbox, and an outbox per peer. Sending never blocks; a full outbox drops and counts."""

    def __init__(
        self, process_id: str, epoch: int, endpoint: str, keys: CurveKeys | None = None
    ) -> None:
        """Raises ConfigError when the endpoint cannot be used, or is tcp without `keys`."""
        if endpoint.startswith("tcp://") and keys is None:
            raise ConfigError(f"{endpoint}: a control channel over tcp needs CURVE keys")
        self.counters: Counter[str] = Counter()
        self._process_id = process_id
        self._epoch = epoch
        self._keys = keys
        self._context = zmq.Context()
        # Before the inbox: without a doorkeeper a CURVE server lets every key in.
        self._door = Doorkeeper(self._context, self.counters) if keys else None
        self._inbox = zmq.asyncio.Context.shadow(self._context).socket(zmq.PULL)
        self._inbox.set_hwm(_HIGH_WATER_MARK)
        self._inbox.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_NBYTES)
        self.endpoint = self._bind(endpoint)
        self._outboxes: dict[str, zmq.Socket[bytes]] = {}
        self._refused: set[bytes] = set()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Envelope)

    def _bind(self, endpoint: str) -> str:
        if self._keys is not None:
            self._inbox.setsockopt(zmq.CURVE_SERVER, 1)
            self._inbox.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret)
            self._inbox.setsockopt(zmq.ZAP_DOMAIN, b"baton")
            self._inbox.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
            self._inbox.setsockopt(zmq.IPV6, "[" in endpoint)
        try:
            self._inbox.bind(endpoint)
        except zmq.ZMQError as error:
            self._close_inbox()
            self._context.term()
            raise ConfigError(
                f"{endpoint}: cannot listen for control messages: {error}; set "
                "cluster.control_host to an address of this machine"
            ) from error
        real = self._inbox.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(real, bytes)
        return real.rstrip(b"\0").decode()

    @property
    def control(self) -> str:
        """What it runs over: "ipc" or "tcp"."""
        return self.endpoint.partition("://")[0]

    def admit(self, process_id: str, epoch: int, key: bytes) -> None:
        """Take messages of the life of a process that holds this public key; over ipc all may.

        Raises RemoteProtocolError when it is no key, or another process has it.
        """
        if self._door is not None:
            self._door.admit(process_id, epoch, key)

    def key_of(self, process_id: str, epoch: int) -> bytes:
        """The public key that was admitted for that life of a process; over ipc there is none."""
        return self._door.key_of(process_id, epoch) if self._door is not None else b""

    def withdraw(self, process_id: str, epoch: int) -> None:
        """That life is over: its key opens nothing any more."""
        if self._door is not None:
            self._door.withdraw(process_id, epoch)

    def connect(self, peer_id: str, endpoint: str, key: bytes = b"") -> None:
        """Open (or reopen, after a restart of the peer) the way to a peer.

        Raises RemoteProtocolError when there is no way, such as without a free descriptor.
        """
        self.disconnect(peer_id)
        try:
            outbox = self._context.socket(zmq.PUSH)
        except zmq.ZMQError as error:
            raise RemoteProtocolError(f"no way to {peer_id}: {error}") from error
        outbox.set_hwm(_HIGH_WATER_MARK)
        outbox.setsockopt(zmq.LINGER, _LINGER_MS)
        try:
            if self._keys is not None:
                outbox.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
                outbox.setsockopt(zmq.CURVE_SERVERKEY, key)
                outbox.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.public)
                outbox.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret)
                outbox.setsockopt(zmq.IPV6, "[" in endpoint)
            outbox.connect(endpoint)
        except (zmq.ZMQError, TypeError, ValueError) as error:  # the peer chose this endpoint
            outbox.close(linger=0)
            raise RemoteProtocolError(f"no way to {peer_id} at {endpoint}: {error}") from error
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
        frame = self._encoder.encode(envelope)
        if len(frame) > MAX_MESSAGE_NBYTES:
            self.counters["oversized_messages"] += 1
            return
        try:
            outbox.send_multipart((COMPATIBILITY, frame), zmq.NOBLOCK)
        except zmq.Again:
            self.counters["outbox_full"] += 1

    async def receive(self) -> Envelope:
        """The next message of this protocol version; others are counted and dropped."""
        while True:
            frames, holder = await self._take()
            if len(frames) != 2 or frames[0] != COMPATIBILITY:
                self._refuse(frames[0])
                continue
            try:
                envelope = self._decoder.decode(frames[1])
            except Exception:
                # Not only DecodeError: deep nesting ends in RecursionError, and a value that a
                # type refuses at its construction in that type's own error. None may end this.
                self.counters["malformed_messages"] += 1
                continue
            if self._door is None or holder == (envelope.sender_id, envelope.sender_epoch):
                return envelope
            self.counters["forged_senders" if holder else "withdrawn_senders"] += 1

    async def _take(self) -> tuple[list[bytes], tuple[str, int] | None]:
        """The frames of the next message, and over tcp whose key its connection has."""
        if self._door is None:
            return await self._inbox.recv_multipart(), None
        frames = await self._inbox.recv_multipart(copy=False)
        user_id = str(frames[0].get("User-Id"))
        return [frame.bytes for frame in frames], self._door.holder(user_id)

    def _refuse(self, header: bytes) -> None:
        """Say once, by name, that a peer speaks another version of the protocol."""
        self.counters["incompatible_messages"] += 1
        if header not in self._refused and len(self._refused) < _MAX_REFUSED:
            self._refused.add(header)
            notice(
                self._process_id,
                f"refused a message of protocol {header[:80]!r}; this process speaks "
                f"{COMPATIBILITY.decode()!r}: install the same kvbaton on every worker",
            )

    def close(self) -> None:
        """Close every socket; what was queued gets a moment to leave."""
        for outbox in self._outboxes.values():
            outbox.close()
        self._outboxes.clear()
        self._close_inbox()
        self._context.term()
        if self.endpoint.startswith("ipc://"):
            with contextlib.suppress(OSError):
                os.unlink(self.endpoint.removeprefix("ipc://"))

    def _close_inbox(self) -> None:
        self._inbox.close(linger=0)
        if self._door is not None:
            self._door.close()


def control_endpoint(cluster: ClusterConfig, runtime_dir: Path, name: str) -> str:
    """Where a process of this deployment listens; over tcp the system chooses the port."""
    if cluster.control == "tcp":
        host = cluster.control_host
        return f"tcp://[{host}]:*" if ":" in host else f"tcp://{host}:*"
    return ipc_endpoint(runtime_dir, name)


def ipc_endpoint(runtime_dir: Path, name: str) -> str:
    """A Unix-socket endpoint inside the private runtime directory."""
    return f"ipc://{runtime_dir}/{name}"
