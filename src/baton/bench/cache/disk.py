"""A prefix that has to come back from the disk tier, beside computing it again."""

import asyncio
import contextlib
import ctypes
import mmap
import os
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from baton.bench.cache.budget import Budget
from baton.bench.cache.pair import SOURCE, Pair, open_pair
from baton.bench.traffic import prompt_of
from baton.core.cache import Tier
from baton.errors import BatonError

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
TITLE = "Disk tier against recompute"
_SPARE = 1.25
"""Blocks of the pool over those of the longest prompt: a load leaves some to those who decode."""
_POLL_S = 0.02
_PATIENCE_S = 60.0


class Way(StrEnum):
    """How the rows of a prompt come to be in memory."""

    COMPUTED = "computed"
    CACHED_FILES = "disk, files in the page cache"
    COLD_FILES = "disk, files dropped from it"


class Reload(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt in one round."""

    way: Way
    num_tokens: int
    ttft_s: float
    num_loaded: int
    """Blocks that came up from the disk."""
    num_wanted: int
    """Blocks that could have."""


class DiskTier(msgspec.Struct, frozen=True, kw_only=True):
    """All lengths, ways and rounds."""

    reloads: tuple[Reload, ...]
    bytes_per_token: int
    prefill_us_per_token: float
    disk_bytes_per_us: float
    """As the worker measured it over all loads."""
    still_cached: float
    """Largest share of the files' bytes that was in the page cache after they were dropped."""

    def of(self, way: Way, num_tokens: int) -> list[Reload]:
        """The rounds of one length and way."""
        return [one for one in self.reloads if (one.way, one.num_tokens) == (way, num_tokens)]

    def ttft_s(self, way: Way, num_tokens: int) -> float:
        """Median of the rounds."""
        return median(one.ttft_s for one in self.of(way, num_tokens))

    @property
    def lengths(self) -> list[int]:
        """Prompt lengths, ascending."""
        return sorted({one.num_tokens for one in self.reloads})

    def break_even(self, way: Way) -> int | None:
        """The shortest length from which on reloading was faster at every length measured."""
        found = None
        for length in reversed(self.lengths):
            if self.ttft_s(way, length) >= self.ttft_s(Way.COMPUTED, length):
                break
            found = length
        return found

    @property
    def is_met(self) -> bool:
        """There is such a length, even where the device itself has to be read."""
        return self.break_even(Way.COLD_FILES) is not None


async def measure_disk(
    model: str, num_rounds: int, lengths: Sequence[int], budget: Budget
) -> DiskTier:
    """One deployment; each round computes, then reloads twice, with new prompts."""
    async with open_pair(model) as pair:
        info = pair.info
    size = info.layout.block_size
    fitting = [length for length in lengths if size < length < info.max_model_len]
    if not fitting:
        raise BatonError(f"{model} takes {info.max_model_len} tokens; no length is to be measured")
    num_blocks = int(_SPARE * info.layout.num_blocks(max(fitting) + 2)) + 4
    with tempfile.TemporaryDirectory(prefix="baton-disk-") as folder:
        knobs = [
            # Decode keeps nothing, so every way hands the whole prompt over.
            "cache.milestone=prefill",
            f'cache.disk_dir="{folder}"',
            f"cache.disk_nbytes={4 * num_rounds * sum(fitting) * info.layout.bytes_per_token}",
            f"worker.kv_nbytes={num_blocks * info.layout.bytes_per_block}",
        ]
        async with open_pair(model, *knobs) as pair:
            rig = _Rig(pair, Path(folder), fitting, num_blocks)
            reloads = []
            for number in budget.rounds(num_rounds):
                reloads += await rig.round(number)
                budget.said(f"disk tier: round {number + 1} of {num_rounds}")
            shot = (await pair.snapshots())[SOURCE]
    (disk,) = (load for load in shot.tiers if load.tier is Tier.DISK)
    return DiskTier(
        reloads=tuple(reloads),
        bytes_per_token=info.layout.bytes_per_token,
        prefill_us_per_token=shot.rates.prefill_us_per_token,
        disk_bytes_per_us=disk.bytes_per_us,
        still_cached=rig.still_cached,
    )


class _Rig:
    """Fills the pool, empties it, and asks again."""

    def __init__(self, pair: Pair, folder: Path, lengths: Sequence[int], num_blocks: int) -> None:
        self._pair = pair
        self._folder = folder
        self._lengths = lengths
        self._num_blocks = num_blocks
        self._size = pair.info.layout.block_size
        self._num_junk = 0
        self.still_cached = 0.0

    async def round(self, number: int) -> list[Reload]:
        """Every length once in every way; short ones first, so that the long ones evict them."""
        found = [await self._ask(Way.COMPUTED, length, number) for length in self._lengths]
        for way in (Way.CACHED_FILES, Way.COLD_FILES):
            await self._until_stored()
            await self._evict()
            if way is Way.COLD_FILES:
                drop_from_page_cache(self._folder)
                self.still_cached = max(self.still_cached, cached_share(self._folder))
            found += [await self._ask(way, length, number) for length in self._lengths]
        return found

    async def _ask(self, way: Way, length: int, number: int) -> Reload:
        pair = self._pair
        before = await pair.worker_counter(SOURCE, "disk_hits")
        prompt = prompt_of(length, pair.info.vocab_size, 3 + number)
        timed = await pair.ask(prompt, 2, f"disk {number} {length}")
        loaded = await pair.worker_counter(SOURCE, "disk_hits") - before
        wanted = 0 if way is Way.COMPUTED else (length - 1) // self._size
        if way is Way.COMPUTED and timed.cached_tokens:
            raise BatonError(f"a prompt of {length} tokens that is new was found in the cache")
        if timed.cached_tokens != loaded * self._size:
            raise BatonError(
                f"a prompt of {length} tokens found {timed.cached_tokens} rows, of which "
                f"{loaded} blocks of {self._size} came from the disk: the others never left memory"
            )
        return Reload(
            way=way,
            num_tokens=length,
            ttft_s=timed.ttft_s,
            num_loaded=loaded,
            num_wanted=wanted,
        )

    async def _until_stored(self) -> None:
        """Everything that is history lies on the disk, too."""
        for _ in range(int(_PATIENCE_S / _POLL_S)):
            shot = (await self._pair.snapshots())[SOURCE]
            memory, disk = (
                next(load for load in shot.tiers if load.tier is tier)
                for tier in (Tier.MEMORY, Tier.DISK)
            )
            if disk.num_named >= memory.num_named and await self._is_quiet(disk.num_named):
                return
            await asyncio.sleep(_POLL_S)
        raise BatonError(f"history was not stored on the disk within {_PATIENCE_S:.0f} s")

    async def _is_quiet(self, num_named: int) -> bool:
        shot = (await self._pair.snapshots())[SOURCE]
        return all(x.num_named == num_named for x in shot.tiers if x.tier is Tier.DISK)

    async def _evict(self) -> None:
        """Other prompts take every block of memory."""
        longest, left = max(self._lengths), self._num_blocks
        while left > 0:
            length = min(longest, left * self._size)
            self._num_junk += 1
            prompt = prompt_of(length, self._pair.info.vocab_size, 900 + self._num_junk)
            await self._pair.ask(prompt, 2, f"junk {self._num_junk}")
            left -= length // self._size


def drop_from_page_cache(folder: Path) -> None:
    """The next reader of these files waits for the device, as after a long time."""
    for path in folder.rglob("*.kv"):
        # A file may be evicted at any moment: then it is nobody's concern.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def cached_share(folder: Path) -> float:
    """How much of these files is in the page cache now, 0 to 1."""
    mincore = ctypes.CDLL(None).mincore
    num_pages = num_cached = 0
    for path in folder.rglob("*.kv"):
        with contextlib.suppress(FileNotFoundError):
            view = np.memmap(path, np.uint8, "r")
            flags = np.zeros(-(-view.nbytes // mmap.PAGESIZE), np.uint8)
            address = ctypes.c_void_p(view.ctypes.data)
            failed = mincore(address, ctypes.c_size_t(view.nbytes), flags.ctypes)
            num_pages += flags.size
            num_cached += flags.size if failed else int((flags & 1).sum())
    return num_cached / num_pages if num_pages else 0.0


def print_disk(found: DiskTier, console: Console) -> None:
    """Limits first, then each length, then the line."""
    rate = found.disk_bytes_per_us
    reload_us = found.bytes_per_token / rate if rate else 0.0
    console.print(
        f"[bold]{TITLE}[/bold]\nlimits per row: computing {found.prefill_us_per_token:.0f} us, "
        f"reading and verifying {reload_us:.0f} us "
        f"({found.bytes_per_token:,} bytes at {rate / 1e3:.2f} GB/s); "
        f"{found.still_cached:.0%} of the files stayed in the page cache when they were dropped",
        highlight=False,
    )
    table = Table(title="median TTFT, ms", title_justify="left", box=None, pad_edge=False)
    table.add_column("prompt", justify="right")
    for way in Way:
        table.add_column(way, justify="right")
    table.add_column("blocks from disk", justify="right")
    for length in found.lengths:
        reloads = [one for way in list(Way)[1:] for one in found.of(way, length)]
        loaded, wanted = (sum(getattr(x, n) for x in reloads) for n in ("num_loaded", "num_wanted"))
        cells = (f"{found.ttft_s(way, length) * 1e3:.1f}" for way in Way)
        table.add_row(str(length), *cells, f"{loaded} of {wanted}")
    console.print(table)
    for way in list(Way)[1:]:
        start = found.break_even(way)
        verdict = "NOT met at any length" if start is None else f"from {start} tokens on, met"
        console.print(f"accept: reload beats recompute ({way}): {verdict}", highlight=False)
