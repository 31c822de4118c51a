"""`python -m baton.bench.tiers`: copies between tiers beside their limits, measured in one run.

The limit of the host tier is one np.copyto of the same bytes, that of the disk tier the plainest
way to write and read the same files. Both ways take turns; a figure is the median of the rounds'
ratios, so that whatever else the machine does meets both.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from baton.core.cache import Tier
from baton.core.effects import CopyBlock
from baton.core.events import BlockCopied, Event
from baton.core.layout import KVLayout, ModelIdentity, ModelInfo
from baton.errors import BatonError
from baton.runtime.dataplane import Arena
from baton.runtime.dataplane.nixl import is_installed
from baton.runtime.tiers.copier import TierCopier
from baton.runtime.tiers.disk_tier import DiskTier
from baton.runtime.tiers.file_mover import Driver
from baton.runtime.tiers.host_tier import HostTier
from baton.runtime.tiers.memory_tier import MemoryTier
from baton.runtime.tiers.tier_thread import TierThread


class TierRow(msgspec.Struct, frozen=True, kw_only=True):
    """One way of copying beside its limit; rates are medians of the rounds."""

    name: str
    gbps: float
    limit_gbps: float
    ratio: float
    """Median of the rounds' ratios of the two."""
    block_us: float
    """Of one block, with its order and its answer."""
    files_ratio: float = 0.0
    """Of another driver: median of the rounds' ratios of the files driver's time to its own."""


class _Rig:
    """Tiers as a worker has them, driven through their thread."""

    def __init__(self, folder: Path, layout: KVLayout, num_blocks: int, driver: Driver) -> None:
        identity = ModelIdentity(model="bench", checkpoint_hash="", tokenizer_hash="")
        model = ModelInfo(
            name="bench",
            max_model_len=1,
            vocab_size=1,
            eos_token_ids=(),
            identity=identity,
            layout=layout,
        )
        self.num_blocks, self.nbytes = num_blocks, num_blocks * layout.bytes_per_block
        self.block_nbytes = layout.bytes_per_block
        # As a worker's pool they lie in shared memory, whose small pages cost a copy a fifth.
        self._arenas = [Arena.create(name, self.nbytes) for name in ("pool", "spare")]
        self.pool, self.spare = (arena.buffer[: self.nbytes] for arena in self._arenas)
        self.pool[:] = np.random.default_rng(1).integers(0, 256, self.nbytes, dtype=np.uint8)
        self.folder = folder
        host = HostTier("bench", 1, layout, num_blocks)
        disk = DiskTier(str(folder), "bench", model, num_blocks, driver=driver)
        self._copier = TierCopier(MemoryTier(self.pool, layout, num_blocks), host, disk)
        self._done = asyncio.Event()
        self._open = 0
        self.thread = TierThread(
            self._copier, layout.bytes_per_block, asyncio.get_running_loop(), self._post, _lost
        )

    def _post(self, event: Event) -> None:
        assert isinstance(event, BlockCopied)
        if event.error:
            raise BatonError(f"a copy failed: {event.error}")
        self._open -= 1
        if not self._open:
            self._done.set()

    async def copy_all(self, source: Tier, target: Tier) -> float:
        """Copy every block once, as a burst; returns seconds until the last answer."""
        self._open = self.num_blocks
        self._done.clear()
        started_s = time.perf_counter()
        for number in range(self.num_blocks):
            order = CopyBlock(
                copy_id=number,
                block_hash=number.to_bytes(16, "big"),
                generation=1,
                source=source,
                source_slot=number,
                target=target,
                target_slot=number,
            )
            self.thread.submit(order)
        async with asyncio.timeout(300):
            await self._done.wait()
        return time.perf_counter() - started_s

    def close(self) -> None:
        """Give everything back."""
        self.thread.close()
        self._copier.close()
        del self.pool, self.spare
        for arena in self._arenas:
            arena.close()


def _lost(reason: str) -> None:
    raise BatonError(reason)


@contextmanager
def _opened(
    folder: Path, layout: KVLayout, num_blocks: int, driver: Driver = "files"
) -> Iterator[_Rig]:
    rig = _Rig(folder, layout, num_blocks, driver)
    try:
        yield rig
    finally:
        rig.close()


def _memcpy(rig: _Rig) -> float:
    started_s = time.perf_counter()
    np.copyto(rig.spare, rig.pool)
    return time.perf_counter() - started_s


def _plain_paths(rig: _Rig) -> list[Path]:
    return [rig.folder / f"plain-{number}" for number in range(rig.num_blocks)]


def _plain_write(rig: _Rig) -> float:
    started_s = time.perf_counter()
    for number, path in enumerate(_plain_paths(rig)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        first = number * rig.block_nbytes
        os.write(handle, rig.pool[first : first + rig.block_nbytes].data)
        os.close(handle)
    return time.perf_counter() - started_s


def _plain_read(rig: _Rig) -> float:
    started_s = time.perf_counter()
    for number, path in enumerate(_plain_paths(rig)):
        handle = os.open(path, os.O_RDONLY)
        first = number * rig.block_nbytes
        os.readv(handle, [rig.spare[first : first + rig.block_nbytes].data])
        os.close(handle)
    return time.perf_counter() - started_s


def _make_cold(folder: Path) -> None:
    """Everything under the folder goes to the device and out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


async def measure_tiers(layout: KVLayout, num_blocks: int, rounds: int) -> list[TierRow]:
    """Every way, `rounds` times, after one round that is not counted.

    Where NIXL is installed, its driver of the disk tier takes turns with the files driver.
    """
    ways: list[tuple[str, Tier, Tier, Callable[[_Rig], float], bool]] = [
        ("memory to host", Tier.MEMORY, Tier.HOST, _memcpy, False),
        ("host to memory", Tier.HOST, Tier.MEMORY, _memcpy, False),
        ("memory to disk", Tier.MEMORY, Tier.DISK, _plain_write, False),
        ("disk to memory, in the page cache", Tier.DISK, Tier.MEMORY, _plain_read, False),
        ("disk to memory, cold", Tier.DISK, Tier.MEMORY, _plain_read, True),
    ]
    rows = []
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="baton-tiers-")))
        rig = stack.enter_context(_opened(place, layout, num_blocks))
        other = None
        if is_installed():
            (place / "nixl").mkdir()
            other = stack.enter_context(_opened(place / "nixl", layout, num_blocks, "nixl"))
        for name, source, target, limit, is_cold in ways:
            limits: list[float] = []
            times: dict[_Rig, list[float]] = {rig: []}
            if other is not None and Tier.DISK in (source, target):
                times[other] = []
            for _ in range(rounds + 1):
                if is_cold:
                    _make_cold(rig.folder)
                limits.append(limit(rig))
                for which, taken in times.items():
                    taken.append(await which.copy_all(source, target))
            for which, taken in times.items():
                words = name if which is rig else f"{name}, by NIXL"
                files = None if which is rig else times[rig]
                rows.append(_row(words, which, taken, limits, files))
    return rows


def _row(
    name: str, rig: _Rig, times: list[float], limits: list[float], files: list[float] | None
) -> TierRow:
    """The figures of all rounds but the first."""
    times, limits = times[1:], limits[1:]
    return TierRow(
        name=name,
        gbps=rig.nbytes / median(times) / 1e9,
        limit_gbps=rig.nbytes / median(limits) / 1e9,
        ratio=median(limit / ours for ours, limit in zip(times, limits, strict=True)),
        block_us=median(times) / rig.num_blocks * 1e6,
        files_ratio=median(theirs / ours for ours, theirs in zip(times, files[1:], strict=True))
        if files
        else 0.0,
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure and print; the default geometry is that of SmolLM2-135M in float32."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    layout = KVLayout(
        num_layers=options.layers,
        num_kv_heads=options.kv_heads,
        head_dim=options.head_dim,
        block_size=options.block_size,
    )
    rows = asyncio.run(measure_tiers(layout, options.blocks, options.rounds))
    table = Table(
        title=f"copies of {options.blocks} blocks of {layout.bytes_per_block >> 10} KiB "
        f"({layout.num_layers} layers), verified; limit: one np.copyto, plain files",
        title_justify="left",
    )
    for column in ("", "GB/s", "limit GB/s", "ratio", "us per block", "files driver's"):
        table.add_column(column, justify="right" if column else "left")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.gbps:.2f}",
            f"{row.limit_gbps:.2f}",
            f"{row.ratio:.2f}",
            f"{row.block_us:.0f}",
            f"x {row.files_ratio:.2f}" if row.files_ratio else "",
        )
    Console().print(table)
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))


if __name__ == "__main__":
    main()
