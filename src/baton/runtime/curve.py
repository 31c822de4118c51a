"""CURVE over tcp: the key pair of one life of a process, and who is admitted by which key."""

import asyncio
import struct
from collections import Counter, OrderedDict
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from zmq.utils import z85

from baton.errors import ConfigError, RemoteProtocolError

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_ZAP_VERSION = b"1.0"
_NUM_FRAMES = 7
_MAX_WAITING = 4096
"""Handshakes with unknown keys that are remembered, about 1 MB. Whoever wants to push an early peer
out has to complete so many in the moment before its key comes; it then waits for its next try.
"""
KEY_NBYTES = 40
"""Of a key as this package holds it: Z85 text."""


class CurveKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The key pair of one life of a process. The secret half never shows in a text."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"CurveKeys(public={self.public!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("public", self.public)]


def mint_keys() -> CurveKeys:
    """A fresh key pair. Raises ConfigError where ZeroMQ was built without encryption."""
    if not zmq.has("curve"):
        raise ConfigError(
            'cluster.control is "tcp", but this build of pyzmq has no CURVE and Baton has no '
            'unencrypted tcp; install pyzmq from a wheel, or use "ipc"'
        )
    public, secret = zmq.curve_keypair()
    return CurveKeys(public=public, secret=secret)


def check_key(holder: str, key: bytes) -> str:
    """A public key as text. Raises RemoteProtocolError, naming the holder, when it is none."""
    if len(key) != KEY_NBYTES:
        raise RemoteProtocolError(
            f"{holder} has a control key of {len(key)} bytes, not {KEY_NBYTES}; set the same "
            "cluster.control on every worker"
        )
    try:
        if len(z85.decode(key)) == KEY_NBYTES * 4 // 5:
            return key.decode("ascii")
    except (ValueError, KeyError, struct.error):
        pass
    raise RemoteProtocolError(
        f"{holder} has a control key that is not Z85 text; use the pair that its supervisor minted"
    )


class Doorkeeper:
    """Answers the handshakes of one ZeroMQ context: a known public key may enter, others not.

    It works at handshakes only; a message costs one look-up of its connection's key. A peer may
    come a moment before its key does. Its handshake then waits for an answer, because a client
    that was refused gives its connection up for ever, while one whose handshake timed out tries
    again.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", counters: Counter[str]) -> None:
        self._counters = counters
        self._known: dict[str, tuple[str, int]] = {}
        self._waiting: OrderedDict[str, list[bytes]] = OrderedDict()
        """Keys that nobody has named yet, and the head of the answer to their last handshake."""
        self._socket = zmq.asyncio.Context.shadow(context).socket(zmq.ROUTER)
        self._socket.bind(_ZAP_ENDPOINT)
        self._answering = asyncio.get_running_loop().create_task(self._answer())

    def admit(self, process_id: str, epoch: int, public: bytes) -> None:
        """Let that life of a process in; the key of an earlier life is withdrawn.

        Raises RemoteProtocolError when it is no key, or that of another process: then nothing
        changes, because a key that spoke for two would speak for neither.
        """
        key = check_key(f"{process_id} epoch {epoch}", public)
        owner = self._known.get(key)
        if owner is not None and owner[0] != process_id:
            raise RemoteProtocolError(
                f"{process_id} epoch {epoch} names the control key of {owner[0]}; every life of a "
                "process needs a key pair of its own"
            )
        self._forget(process_id)
        self._known[key] = (process_id, epoch)
        head = self._waiting.pop(key, None)
        if head is not None:
            self._let_in(key, head)

    def withdraw(self, process_id: str, epoch: int) -> None:
        """Forget the key of a life that is over; a later life's stays."""
        if (process_id, epoch) in self._known.values():
            self._forget(process_id)

    def holder(self, user_id: str) -> tuple[str, int] | None:
        """Which life of which process an authenticated connection belongs to, if it still may."""
        return self._known.get(user_id)

    def key_of(self, process_id: str, epoch: int) -> bytes:
        """The public key of that life of a process, or b"" when none was admitted."""
        for key, holder in self._known.items():
            if holder == (process_id, epoch):
                return key.encode()
        return b""

    def close(self) -> None:
        """Stop answering; call it after the inbox is closed."""
        self._answering.cancel()
        self._socket.close(linger=0)

    def _forget(self, process_id: str) -> None:
        for key in [key for key, (name, _) in self._known.items() if name == process_id]:
            del self._known[key]

    async def _answer(self) -> None:
        while True:
            routing_id, empty, *frames = await self._socket.recv_multipart()
            if len(frames) != _NUM_FRAMES or frames[5] != b"CURVE" or len(frames[6]) != 32:
                continue  # only CURVE can get here; anything else stays outside
            key: str = z85.encode(frames[6]).decode()
            head = [routing_id, empty, _ZAP_VERSION, frames[1]]
            if key in self._known:
                self._let_in(key, head)
            else:
                self._counters["unknown_keys"] += 1
                self._waiting[key] = head  # one place for a key that tries again: the last
                self._waiting.move_to_end(key)
                if len(self._waiting) > _MAX_WAITING:
                    self._waiting.popitem(last=False)

    def _let_in(self, key: str, head: list[bytes]) -> None:
        # Without waiting: an answer to a client that has left is dropped by the socket.
        self._socket.send_multipart([*head, b"200", b"OK", key.encode(), b""], zmq.NOBLOCK)
