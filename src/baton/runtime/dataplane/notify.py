"""Notifications between planes of one host: fixed-size records over AF_UNIX SEQPACKET.

The kernel bounds each connection by the sender's socket buffer. A connection names its sender
once, in a greeting with the receiver's token; a record of a sender that is not a connected peer of
exactly that epoch is counted and dropped.
"""

import contextlib
import errno
import os
import secrets
import select
import socket
import struct
from collections.abc import Callable, Sequence

import msgspec

from baton.errors import RemoteProtocolError
from baton.runtime.dataplane.plane import Finished, Received

_CREDENTIALS = struct.Struct("3i")
_RECORD = struct.Struct("<4Q")
RECORDS_PER_PACKET = 64
_PACKET_NBYTES_MAX = RECORDS_PER_PACKET * _RECORD.size
_MAX_CONNECTIONS = 256
_PACKETS_PER_POLL_MAX = 64
"""Per connection, so that one busy peer cannot starve the caller's loop."""


class Greeting(msgspec.Struct, frozen=True, array_like=True):
    """First packet of a connection."""

    token: bytes
    source_id: str
    source_epoch: int


class NotifySender:
    """The way to one peer. Its buffer survives the sender's silence, not the receiver's death."""

    def __init__(self, address: str, greeting: Greeting) -> None:
        """Raises RemoteProtocolError when nobody of this user listens at `address`."""
        kind = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK
        try:
            self._socket = socket.socket(socket.AF_UNIX, kind)
        except OSError as error:
            raise RemoteProtocolError(f"no socket for {address}: {error}") from error
        try:
            self._socket.connect(b"\0" + address.encode())
            _require_own_user(self._socket)
            self._socket.send(msgspec.msgpack.encode(greeting), socket.MSG_NOSIGNAL)
        except OSError as error:
            self._socket.close()
            raise RemoteProtocolError(f"no data plane listens at {address}: {error}") from error

    def try_send(self, moved: Sequence[Finished]) -> bool:
        """Send one packet about at most `RECORDS_PER_PACKET` chunks, without blocking.

        Returns False when the buffer is full. Raises OSError when the peer is dead.
        """
        packet = b"".join(
            _RECORD.pack(chunk.reservation_id, chunk.chunk_id, chunk.nbytes, chunk.checksum)
            for chunk in moved
        )
        try:
            self._socket.send(packet, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Close; records already sent are still delivered."""
        self._socket.close()


class NotifyReceiver:
    """Accepts connections of peers and reads their records; `epoll` tells when to."""

    def __init__(self, epoll: select.epoll) -> None:
        self.address = f"baton-{os.getpid()}-{secrets.token_hex(8)}"
        self.token = secrets.token_bytes(16)
        self.dropped_records = 0
        self.refused_connections = 0
        self._epoll = epoll
        self._is_full = False
        self._greetings: dict[int, Greeting | None] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(b"\0" + self.address.encode())
        self._listener.listen(_MAX_CONNECTIONS)
        epoll.register(self._listener, select.EPOLLIN)

    def receive(self, known: Callable[[str, int], bool]) -> list[Received]:
        """Return the records that have arrived from senders for which `known(id, epoch)`."""
        received: list[Received] = []
        if self._is_full:
            self._is_full = False
            self._epoll.modify(self._listener, select.EPOLLIN)
        # A connection accepted here is level-triggered: its packets show in the second pass.
        for _ in range(2):
            accepted = False
            for handle, _events in self._epoll.poll(0):
                if handle == self._listener.fileno():
                    accepted = self._accept()
                elif handle in self._sockets:
                    self._read(handle, known, received)
            if not accepted:
                break
        return received

    def close(self) -> None:
        """Close everything; senders see a dead peer from now on."""
        for handle in list(self._sockets):
            self._close(handle)
        self._listener.close()

    def _accept(self) -> bool:
        accepted = False
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    connection, _ = self._listener.accept()
                except OSError as error:
                    if error.errno not in (errno.EMFILE, errno.ENFILE):
                        raise
                    # The connection waits in the backlog. Until the next `receive` the listener
                    # is silent: it would be readable all the time.
                    self._is_full = True
                    self._epoll.modify(self._listener, 0)
                    return accepted
                connection.setblocking(False)
                try:
                    _require_own_user(connection)
                    if len(self._sockets) >= _MAX_CONNECTIONS:
                        raise PermissionError("too many connections")
                except OSError:
                    self.refused_connections += 1
                    connection.close()
                    continue
                handle = connection.fileno()
                self._sockets[handle] = connection
                self._greetings[handle] = None
                self._epoll.register(handle, select.EPOLLIN)
                accepted = True
        return accepted

    def _read(
        self, handle: int, known: Callable[[str, int], bool], received: list[Received]
    ) -> None:
        connection = self._sockets[handle]
        for _ in range(_PACKETS_PER_POLL_MAX):
            try:
                packet = connection.recv(_PACKET_NBYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            greeting = self._greetings[handle]
            if not packet:
                self._close(handle)
                return
            if greeting is None:
                if not self._greet(handle, packet):
                    return
            elif len(packet) % _RECORD.size:
                self.dropped_records += 1
            elif not known(greeting.source_id, greeting.source_epoch):
                self.dropped_records += len(packet) // _RECORD.size
            else:
                received.extend(_received(greeting, packet))

    def _greet(self, handle: int, packet: bytes) -> bool:
        try:
            greeting = msgspec.msgpack.decode(packet, type=Greeting)
        except (msgspec.DecodeError, RecursionError):
            greeting = None
        if greeting is None or not secrets.compare_digest(greeting.token, self.token):
            self.refused_connections += 1
            self._close(handle)
            return False
        self._greetings[handle] = greeting
        return True

    def _close(self, handle: int) -> None:
        del self._greetings[handle]
        self._epoll.unregister(handle)
        self._sockets.pop(handle).close()


def _received(greeting: Greeting, packet: bytes) -> list[Received]:
    return [
        Received(
            source_id=greeting.source_id,
            source_epoch=greeting.source_epoch,
            reservation_id=reservation_id,
            chunk_id=chunk_id,
            nbytes=nbytes,
            checksum=checksum,
            framing_nbytes=_RECORD.size,
        )
        for reservation_id, chunk_id, nbytes, checksum in _RECORD.iter_unpack(packet)
    ]


def _require_own_user(connection: socket.socket) -> None:
    # Abstract addresses have no file mode: the kernel's word on the other side replaces it.
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(raw)
    if user != os.geteuid():
        raise PermissionError(f"the other side runs as user {user}, not {os.geteuid()}")
