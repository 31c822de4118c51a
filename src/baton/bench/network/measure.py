"""Handoffs between two namespaces and raw NIXL calls between the same two, in turn.

Both sides of both pairs run on the same two cores: ours with queues, notifications, credit and,
with checksums, a sum at either end; raw NIXL with one call at a time and a receiver that looks.
"""

import contextlib
import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import msgspec

from baton.bench.network.namespaces import Namespace, cable
from baton.bench.network.raw import RawSide, raw_destination
from baton.bench.payload import MIB, PayloadSource, payload_destination
from baton.config import BatonConfig, TransferConfig
from baton.core.cluster_settings import ClusterConfig
from baton.errors import BatonError
from baton.runtime.dataplane.nixl import require_nixl

SIZES = (1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB)
_ROUND_NBYTES = 128 * MIB


class NetworkRow(msgspec.Struct, frozen=True, kw_only=True):
    """One handoff size; medians, rates in GB/s (1e9 bytes). `ratio` is time against raw NIXL's."""

    nbytes: int
    checksum: bool
    ours_gbps: float
    raw_gbps: float
    ratio: float


def measure_network(
    *, checksum: bool, num_rounds: int = 5, sizes: tuple[int, ...] = SIZES
) -> list[NetworkRow]:
    """Measure handoffs of each of `sizes` bytes; some seconds per size.

    Raises ConfigError without NIXL, without root or without iproute2.
    """
    require_nixl("the network benchmark")
    context = multiprocessing.get_context("spawn")
    control, theirs = context.Pipe()
    with cable() as (here, there), _lane("tcp"):
        child = context.Process(
            target=_source, args=(theirs, here, there, sizes, num_rounds, checksum)
        )
        child.start()
        theirs.close()
        try:
            rows: list[NetworkRow] = control.recv()
            child.join(10)
        except EOFError as error:
            raise BatonError("the source of the network benchmark ended; see above") from error
        finally:
            child.kill()
    return rows


def _source(
    control: Connection,
    here: Namespace,
    there: Namespace,
    sizes: tuple[int, ...],
    num_rounds: int,
    checksum: bool,
) -> None:
    """The process of both sources; the destinations are its children."""
    here.enter()
    cores = sorted(os.sched_getaffinity(0))
    with (
        _ours(here, there, cores, checksum=checksum) as ours,
        _raw(here, there, cores, max(sizes)) as raw,
    ):
        rows = [_measure(ours, raw, n, num_rounds, checksum=checksum) for n in sizes]
    control.send(rows)


class _Raw:
    """The writing side of raw NIXL and the word to its receiver."""

    def __init__(self, control: Connection, host: str, nbytes: int) -> None:
        self._control = control
        self._side = RawSide("raw-source", nbytes, host)
        self._remote, metadata = control.recv()
        control.send(self._side.metadata)
        self._peer = self._side.add(metadata)
        control.recv()

    def stream(self, nbytes: int, call_nbytes: int) -> float:
        """Write `nbytes`, so many in one call; returns the seconds."""
        self._control.send("spin")
        self._control.recv()
        began_s = time.perf_counter()
        for _ in range(nbytes // call_nbytes):
            self._side.write(self._peer, self._remote, call_nbytes)
        elapsed_s = time.perf_counter() - began_s
        self._control.send("pause")  # the receiver leaves its core to the other pair
        self._control.recv()
        return elapsed_s

    def close(self) -> None:
        self._control.send("end")


def _measure(
    ours: PayloadSource, raw: _Raw, nbytes: int, num_rounds: int, *, checksum: bool
) -> NetworkRow:
    ours.prepare(nbytes)
    ours.stream(_ROUND_NBYTES)
    our_s, raw_s = [], []
    for _ in range(num_rounds):
        our_s.append(ours.stream(_ROUND_NBYTES))
        raw_s.append(raw.stream(_ROUND_NBYTES, nbytes))
    return NetworkRow(
        nbytes=nbytes,
        checksum=checksum,
        ours_gbps=_ROUND_NBYTES / statistics.median(our_s) / 1e9,
        raw_gbps=_ROUND_NBYTES / statistics.median(raw_s) / 1e9,
        ratio=statistics.median(a / b for a, b in zip(our_s, raw_s, strict=True)),
    )


@contextlib.contextmanager
def _ours(
    here: Namespace, there: Namespace, cores: list[int], *, checksum: bool
) -> Iterator[PayloadSource]:
    transfer = TransferConfig(checksum=checksum, data_plane="nixl")
    configs = [
        BatonConfig(
            transfer=transfer, cluster=ClusterConfig(control="tcp", control_host=place.address)
        )
        for place in (here, there)
    ]
    context = multiprocessing.get_context("spawn")
    control, their_control = context.Pipe()
    credit, their_credit = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = context.Process(
        target=_destination,
        args=(their_control, their_credit, cores[-1], configs[1], there),
        daemon=True,
    )
    child.start()
    os.sched_setaffinity(0, {cores[0]})
    try:
        source = PayloadSource(control, credit, configs[0])
        yield source
        source.close()
        child.join(10)
    finally:
        child.kill()


def _destination(
    control: Connection, credit: socket.socket, core: int, config: BatonConfig, place: Namespace
) -> None:
    place.enter()
    payload_destination(control, credit, core, config)


@contextlib.contextmanager
def _raw(here: Namespace, there: Namespace, cores: list[int], nbytes: int) -> Iterator[_Raw]:
    context = multiprocessing.get_context("spawn")
    control, theirs = context.Pipe()
    child = context.Process(
        target=raw_destination, args=(theirs, cores[-1], nbytes, there), daemon=True
    )
    child.start()
    try:
        raw = _Raw(control, here.address, nbytes)
        yield raw
        raw.close()
        child.join(10)
    finally:
        child.kill()


@contextlib.contextmanager
def _lane(name: str) -> Iterator[None]:
    """Under one kernel UCX would go through memory, whatever the network."""
    before = os.environ.get("UCX_TLS")
    os.environ["UCX_TLS"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["UCX_TLS"]
        else:
            os.environ["UCX_TLS"] = before
