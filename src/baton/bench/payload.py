"""Payload rate of handoffs between two real processes, beside a plain memory copy.

Source and destination run on different cores. Chunks flow under a credit window, and credit
returns only when the destination has verified a chunk where it lies, so with checksums both sides
hash, at the same time. `memcpy` is one `np.copyto` per handoff between the same two mappings, of
the same bytes, measured in the same round; the ratio is the median over the rounds. `ceiling` is
what the source core alone reaches by the plane's own copy and hash of each chunk, without any
messages, so the distance between both ratios is the cost of queues, wakes and credit.
"""

import argparse
import multiprocessing
import os
import select
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Literal

import msgspec
import numpy as np

from baton.config import BatonConfig, TransferConfig
from baton.runtime.dataplane import (
    Arena,
    ArenaDescriptor,
    DigestOrder,
    Finished,
    PutOrder,
    Received,
    RegionDescriptor,
)
from baton.runtime.dataplane.checksum import copy_and_checksum
from baton.runtime.dataplane.choice import choose_plane, create_arena

MIB = 1 << 20
CHUNK_NBYTES = TransferConfig().chunk_nbytes
CREDIT_NBYTES = TransferConfig().credit_nbytes
RETURN_NBYTES = 2 * MIB
"""Credit goes back in one message for this many verified bytes, or when nothing more is here."""
ARENA_NBYTES = 128 * MIB
"""Handoffs walk over the whole arena, so their bytes come from memory as K/V state does."""
ROUND_NBYTES = 256 * MIB
SIZES = (1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB)
QUIET_SHARE = 0.9
_COUNT = struct.Struct("<Q")
_TIMEOUT_S = 30.0


class PayloadRow(msgspec.Struct, frozen=True, kw_only=True):
    """Medians of one handoff size; rates in GB/s (1e9 bytes), latency in microseconds."""

    nbytes: int
    checksum: bool
    payload_gbps: float
    memcpy_gbps: float
    ratio: float
    ceiling: float
    latency_us: float
    memcpy_us: float
    memcpy_cpu_share: float
    """Smallest CPU over wall time of a round of copies. Clearly below 1, another job had the core
    and no figure of the row can be trusted, least of all the ratio."""


class CorruptChunk(Exception):
    """The destination found other bytes than the source sent."""


def measure_payload(
    sizes: Sequence[int] = SIZES,
    *,
    checksum: bool = True,
    num_rounds: int = 5,
    data_plane: Literal["shm", "nixl"] = "shm",
) -> list[PayloadRow]:
    """Measure handoffs of each of `sizes` bytes (multiples of 1 MiB); about 0.5 s per size."""
    config = BatonConfig(transfer=TransferConfig(checksum=checksum, data_plane=data_plane))
    context = multiprocessing.get_context("spawn")
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = context.Pipe()
    credit, peer_credit = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = context.Process(
        target=payload_destination, args=(theirs, peer_credit, cores[-1], config), daemon=True
    )
    child.start()
    peer_credit.close()
    os.sched_setaffinity(0, {cores[0]})
    try:
        source = PayloadSource(ours, credit, config)
        rows = [source.measure(nbytes, num_rounds) for nbytes in sizes]
        source.close()
        child.join(_TIMEOUT_S)
    finally:
        child.kill()
        os.sched_setaffinity(0, cores)
        credit.close()
    return rows


class PayloadSource:
    """The sending side: keeps as many chunks in flight as the credit window allows."""

    def __init__(self, control: Connection, credit: socket.socket, config: BatonConfig) -> None:
        self._control = control
        self._credit = credit
        self._checksum = config.transfer.checksum
        self._arena = create_arena(config, "source", ARENA_NBYTES, epoch=1)
        generator = np.random.default_rng(0)
        self._arena.buffer[:] = generator.integers(0, 256, ARENA_NBYTES, dtype=np.uint8)
        self._plane = choose_plane(config)
        control.send_bytes(msgspec.msgpack.encode(self._plane.register(self._arena)))
        self._plane.connect(msgspec.msgpack.decode(control.recv_bytes(), type=RegionDescriptor))
        arena = msgspec.msgpack.decode(control.recv_bytes(), type=ArenaDescriptor)
        # Private memory cannot be mapped: then the plain copy stays within this process.
        self._mirror = (
            Arena.attach(arena) if arena.name else Arena.create_private("mirror", ARENA_NBYTES)
        )
        control.recv_bytes()
        self._poller = select.poll()
        self._poller.register(self._plane.fileno(), select.POLLIN)
        self._poller.register(credit, select.POLLIN)
        self._handoff_nbytes = self._chunk_nbytes = MIB
        self._chunk_id = 0
        self._verified = 0

    def prepare(self, nbytes: int) -> None:
        """The next streams are handoffs of so many bytes each; nothing is under way now."""
        self._handoff_nbytes = nbytes
        self._chunk_nbytes = min(nbytes, CHUNK_NBYTES)

    def measure(self, nbytes: int, num_rounds: int) -> PayloadRow:
        """Handoffs of `nbytes` beside copies of as many, in turn."""
        payload, memcpy, fused, latency_us, memcpy_us, shares = [], [], [], [], [], []
        self.prepare(nbytes)
        self.stream(ROUND_NBYTES)
        for _ in range(num_rounds):
            payload.append(ROUND_NBYTES / self.stream(ROUND_NBYTES) / 1e9)
            cpu_started = time.thread_time()
            copy_s = self._copy(nbytes)
            shares.append((time.thread_time() - cpu_started) / copy_s)
            memcpy.append(ROUND_NBYTES / copy_s / 1e9)
            fused.append(ROUND_NBYTES / self._copy_and_hash() / 1e9)
            latency_us.append(1e6 * self.stream(nbytes))
            memcpy_us.append(nbytes / memcpy[-1] / 1e3)
        return PayloadRow(
            nbytes=nbytes,
            checksum=self._checksum,
            payload_gbps=statistics.median(payload),
            memcpy_gbps=statistics.median(memcpy),
            ratio=statistics.median(a / b for a, b in zip(payload, memcpy, strict=True)),
            ceiling=statistics.median(a / b for a, b in zip(fused, memcpy, strict=True)),
            latency_us=statistics.median(latency_us),
            memcpy_us=statistics.median(memcpy_us),
            memcpy_cpu_share=min(shares),
        )

    def close(self) -> None:
        """End both sides."""
        self._control.send_bytes(b"")
        self._plane.close()
        self._mirror.close()
        self._arena.close()

    def stream(self, nbytes: int) -> float:
        """Hand `nbytes` over and return the seconds until the last chunk was verified."""
        started = time.perf_counter()
        chunk = self._chunk_nbytes
        limit = self._chunk_id + nbytes // chunk
        window = CREDIT_NBYTES // chunk
        while self._verified < limit:
            while self._chunk_id < min(limit, self._verified + window):
                self._put_next()
            ready = self._poller.poll(1000 * _TIMEOUT_S)
            if not ready:
                raise TimeoutError("the destination does not answer")
            for handle, _ in ready:
                if handle == self._credit.fileno():
                    (self._verified,) = _COUNT.unpack(self._credit.recv(_COUNT.size))
                else:
                    self._check_completions()
        return time.perf_counter() - started

    def _put_next(self) -> None:
        offset = self._chunk_id * self._chunk_nbytes % ARENA_NBYTES
        self._plane.put(
            PutOrder(
                peer_id="destination",
                peer_epoch=1,
                reservation_id=1 + self._chunk_id * self._chunk_nbytes // self._handoff_nbytes,
                chunk_id=self._chunk_id,
                direction="write",
                runs=((offset, offset, self._chunk_nbytes),),
            )
        )
        self._chunk_id += 1

    def _check_completions(self) -> None:
        for completion in self._plane.poll():
            if isinstance(completion, Finished) and completion.error is not None:
                raise CorruptChunk(f"put failed: {completion}")

    def _copy(self, nbytes: int) -> float:
        """Copy `ROUND_NBYTES` plainly, one call per handoff; return the seconds."""
        source, mirror = self._arena.buffer, self._mirror.buffer
        started = time.perf_counter()
        for start in range(0, ROUND_NBYTES, nbytes):
            offset = start % ARENA_NBYTES
            np.copyto(mirror[offset : offset + nbytes], source[offset : offset + nbytes])
        return time.perf_counter() - started

    def _copy_and_hash(self) -> float:
        """Move `ROUND_NBYTES` chunk by chunk without messages; return the seconds."""
        source, mirror = self._arena.buffer, self._mirror.buffer
        started = time.perf_counter()
        for start in range(0, ROUND_NBYTES, self._chunk_nbytes):
            run = slice(start % ARENA_NBYTES, start % ARENA_NBYTES + self._chunk_nbytes)
            copy_and_checksum([mirror[run]], [source[run]], hashed=self._checksum)
        return time.perf_counter() - started


def payload_destination(
    control: Connection, credit: socket.socket, core: int, config: BatonConfig
) -> None:
    """The receiving process: verify each chunk in place, then return its credit."""
    os.sched_setaffinity(0, {core})
    arena = create_arena(config, "destination", ARENA_NBYTES, epoch=1)
    checksum = config.transfer.checksum
    plane = choose_plane(config)
    control.send_bytes(msgspec.msgpack.encode(plane.register(arena)))
    control.send_bytes(msgspec.msgpack.encode(arena.descriptor))
    plane.connect(msgspec.msgpack.decode(control.recv_bytes(), type=RegionDescriptor))
    control.send_bytes(b"ready")
    poller = select.poll()
    poller.register(plane.fileno(), select.POLLIN)
    poller.register(control.fileno(), select.POLLIN)
    expected: dict[int, int] = {}
    verified, returned, unreturned = 0, 0, 0
    while not any(handle == control.fileno() for handle, _ in poller.poll()):
        for completion in plane.poll():
            if isinstance(completion, Received):
                if checksum:
                    expected[completion.chunk_id] = completion.checksum
                    offset = completion.chunk_id * completion.nbytes % ARENA_NBYTES
                    plane.digest(
                        DigestOrder(
                            reservation_id=completion.reservation_id,
                            chunk_id=completion.chunk_id,
                            runs=((offset, completion.nbytes),),
                        )
                    )
                else:
                    verified += 1
                    unreturned += completion.nbytes
            elif isinstance(completion, Finished):
                if completion.checksum != expected.pop(completion.chunk_id):
                    raise CorruptChunk(f"chunk {completion.chunk_id}")
                verified += 1
                unreturned += completion.nbytes
        if verified > returned and (unreturned >= RETURN_NBYTES or not expected):
            credit.send(_COUNT.pack(verified))
            returned, unreturned = verified, 0
    plane.close()
    arena.close()


def render(rows: Sequence[PayloadRow]) -> str:
    """Lay the rows out as a table."""
    lines = [
        "  MiB  checksum  payload GB/s  memcpy GB/s  ratio  ceiling  one handoff us  memcpy us"
    ]
    lines += [
        f"{row.nbytes / MIB:5.0f}  {'on' if row.checksum else 'off':>8}  {row.payload_gbps:12.2f}  "
        f"{row.memcpy_gbps:11.2f}  {row.ratio:5.2f}  {row.ceiling:7.2f}  "
        f"{row.latency_us:14.0f}  {row.memcpy_us:9.0f}"
        + ("" if row.memcpy_cpu_share > QUIET_SHARE else "  disturbed: another job had the core")
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table with checksums on and off."""
    parser = argparse.ArgumentParser(prog="python -m baton.bench.payload", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds per size")
    arguments = parser.parse_args()
    rows = [
        row
        for checksum in (True, False)
        for row in measure_payload(checksum=checksum, num_rounds=arguments.rounds)
    ]
    print(render(rows))
    print(
        f"chunks of {CHUNK_NBYTES // MIB} MiB, {CREDIT_NBYTES // MIB} MiB of credit; the source "
        "core is the limit: it copies, hashes, notifies and takes credit; the other only verifies"
    )


if __name__ == "__main__":
    main()
