"""A datagram that says "look": NIXL has nothing to wait on, so whoever wrote rings.

It is empty and proves nothing: a stranger who reaches the port makes the agent's thread look once.
One that is lost costs a nap, as without a bell.
"""

import contextlib
import socket
import threading
from collections.abc import Callable

Address = tuple[str, int]
_SHUT_S = 1.0


class Doorbell:
    """Listens on an address of this host; `on_ring` is called on a thread that sleeps otherwise."""

    def __init__(self, host: str, on_ring: Callable[[], None]) -> None:
        """Raises OSError where `host` is no address of this host."""
        family, kind, protocol, _, bound = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(family, kind, protocol)
        try:
            self._socket.bind(bound)
        except OSError:
            self._socket.close()
            raise
        self._on_ring = on_ring
        self._closing = False
        self._thread = threading.Thread(target=self._main, name="baton-nixl-bell", daemon=True)
        self._thread.start()

    @property
    def address(self) -> Address:
        """Where peers ring: a number and a port."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def ring(self, address: Address | None) -> None:
        """Let a peer look, if it has a bell; never blocks, and never fails."""
        if address is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(b"", socket.MSG_DONTWAIT, address)

    def close(self) -> None:
        """Stop listening."""
        self._closing = True
        self.ring(self.address)
        self._thread.join(_SHUT_S)
        self._socket.close()

    def _main(self) -> None:
        while not self._closing:
            try:
                self._socket.recv(1)
            except ConnectionError:
                continue  # some peer that was rung has gone
            except OSError:
                return
            self._on_ring()
