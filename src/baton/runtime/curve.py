"""CURVE over tcp: the key pair of one life of a process, and who is admitted by which key."""

import asyncio
from collections import Counter, deque
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from zmq.utils import z85

from baton.errors import ConfigError

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_ZAP_VERSION = b"1.0"
_NUM_FRAMES = 7
_MAX_WAITING = 64
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
        self._waiting: deque[tuple[str, list[bytes]]] = deque(maxlen=_MAX_WAITING)
        """Keys that nobody has named yet, and the heads of the answers to their handshakes."""
        self._socket = zmq.asyncio.Context.shadow(context).socket(zmq.ROUTER)
        self._socket.bind(_ZAP_ENDPOINT)
        self._answering = asyncio.get_running_loop().create_task(self._answer())

    def admit(self, process_id: str, epoch: int, public: bytes) -> None:
        """Let that life of a process in; the key of an earlier life is withdrawn."""
        self._forget(process_id)
        key = public.decode()
        self._known[key] = (process_id, epoch)
        for waiting in [waiting for waiting in self._waiting if waiting[0] == key]:
            self._waiting.remove(waiting)
            self._let_in(*waiting)

    def withdraw(self, process_id: str, epoch: int) -> None:
        """Forget the key of a life that is over; a later life's stays."""
        if (process_id, epoch) in self._known.values():
            self._forget(process_id)

    def holder(self, user_id: str) -> tuple[str, int] | None:
        """Which life of which process an authenticated connection belongs to, if it still may."""
        return self._known.get(user_id)

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
                self._waiting.append((key, head))

    def _let_in(self, key: str, head: list[bytes]) -> None:
        # Without waiting: an answer to a client that has left is dropped by the socket.
        self._socket.send_multipart([*head, b"200", b"OK", key.encode(), b""], zmq.NOBLOCK)
