"""Runs an application on a socket until its task is cancelled."""

import asyncio
import errno
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import uvicorn

from baton.errors import ConfigError
from baton.runtime.gateway.protocol import protocol_class

SHUTDOWN_S = 5
SEND_BUFFER_NBYTES = 262_144
"""Bounds what a client that stopped reading can make the kernel hold."""

BACKLOG = 2048
KEEP_ALIVE_S = 60


class _Server(uvicorn.Server):
    """A server that leaves the signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture nothing."""
        yield


async def serve_app(
    app: Any,
    host: str,
    port: int,
    *,
    on_started: Callable[[str, int], None],
    is_full: Callable[[], bool] = lambda: False,
    shutdown_s: int = SHUTDOWN_S,
) -> None:
    """Serve `app` until this task is cancelled, then finish within about `shutdown_s` seconds.

    Calls `on_started(host, port)` with the real port (`port` 0 picks a free one) once connections
    are accepted. While `is_full`, new ones are dropped at once. Raises ConfigError if the address
    cannot be used.
    """
    listener = bind(host, port)
    config = uvicorn.Config(
        app,
        http=protocol_class(is_full),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=shutdown_s,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        if server.started:
            on_started(host, listener.getsockname()[1])
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        # Uvicorn bounds the wait for requests; a second cancellation ends even that.
        await asyncio.wait([serving], timeout=shutdown_s + 2)
        serving.cancel()
        listener.close()


def bind(host: str, port: int) -> socket.socket:
    """A bound socket. Raises ConfigError naming the address and the remedy."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(
            f"gateway.host {host!r} does not resolve: {error}; use an address of this machine"
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_NBYTES)
        _keep_alive(listener)
        listener.bind(address)
        # Listen now: with SO_REUSEADDR two sockets may be bound, but only one may listen.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _refused(host, port, error) from error
    listener.setblocking(False)
    return listener


def _keep_alive(listener: socket.socket) -> None:
    """Notice a client that vanished without a word while its request waits for a first token."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _refused(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"gateway.port {port} is already in use on {host}; stop the other server, choose "
            "another with --set gateway.port=N, or use 0 for any free port"
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"gateway.port {port} may not be opened by this user; use 1024 or more")
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; change gateway.host")
