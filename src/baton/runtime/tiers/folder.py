"""The folder of one worker's disk tier: its own while it lives, and read once at its start."""

import contextlib
import fcntl
import os
import re
from collections import Counter
from pathlib import Path

import msgspec

from baton.errors import ConfigError
from baton.runtime.tiers.block_file import HEADER_NBYTES, BlockHeader
from baton.runtime.tiers.miss import MissKind, TierMiss

_LOCK = "lock"
_FLOOR = "generation"
_BLOCK_NAME = re.compile(r"[0-9a-f]{32}\.kv")
_HALF_NAME = re.compile(r"[0-9a-f]{32}\.kv\.half")
_REMEDY = "name a directory that this user may write, or set cache.disk_nbytes=0 and cache.disk_dir"


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: blocks of the newest generation, the one written last at the end."""

    generation: int
    entries: tuple[tuple[bytes, int], ...]
    num_removed: int


class TierFolder:
    """Creates and locks `directory/<worker id>`. Raises ConfigError when it cannot be used."""

    def __init__(self, directory: str, worker_id: str) -> None:
        self._field = f"cache.disk_dir {directory!r}"
        self.path = Path(directory).expanduser().absolute() / worker_id
        self._lock = -1
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._lock = os.open(self.path / _LOCK, flags, 0o600)
            # The kernel takes the lock away with the process, however that ends; a file that
            # merely exists would keep the next life out.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
            self._probe()
        except BlockingIOError as error:
            owner = os.pread(self._lock, 20, 0).decode(errors="replace").strip()
            self.close()
            raise ConfigError(
                f"{self._field}: {self.path} is in use by process {owner or 'unknown'}; give every "
                "deployment a directory of its own, or end that one"
            ) from error
        except OSError as error:
            self.close()
            raise ConfigError(
                f"{self._field}: {self.path} cannot be written: {error.strerror}; {_REMEDY}='' for "
                "no disk tier"
            ) from error

    def _probe(self) -> None:
        """A lock that is left from better days opens in a folder that takes no new file."""
        probe = self.half_path(bytes(16))
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        probe.unlink()

    def block_path(self, block_hash: bytes) -> Path:
        """Where a block lies once it is whole."""
        return self.path / f"{block_hash.hex()}.kv"

    def half_path(self, block_hash: bytes) -> Path:
        """Where it is written."""
        return self.path / f"{block_hash.hex()}.kv.half"

    def floor(self) -> int:
        """The highest generation that `raise_floor` was told, 0 without any."""
        try:
            return int((self.path / _FLOOR).read_text())
        except (OSError, ValueError):
            return 0

    def raise_floor(self, generation: int) -> None:
        """Remember that everything below was cleared, for lives and deployments to come.

        Of files alone nothing would be left to tell it: the clear removes them.
        """
        if generation <= self.floor():
            return  # the word is repeated until it is heard
        half = self.path / f"{_FLOOR}.half"
        half.write_text(f"{generation}\n")
        half.rename(self.path / _FLOOR)

    def scan(self, layout_digest: str, origin: str, nbytes: int, max_blocks: int) -> Recovered:
        """Keep what this worker could load, newest generation only, and remove all other blocks.

        Files under other names are not the tier's and stay. Payloads are not read: that would
        take as long as the disk is large, and every load verifies its own.
        """
        kept: list[tuple[int, BlockHeader]] = []
        removed: Counter[str] = Counter()
        for entry in os.scandir(self.path):
            if _HALF_NAME.fullmatch(entry.name):
                removed[entry.name] += 1
            elif _BLOCK_NAME.fullmatch(entry.name):
                try:
                    kept.append(_examine(Path(entry.path), layout_digest, origin, nbytes))
                except (TierMiss, OSError):
                    removed[entry.name] += 1
        generation = max((header.generation for _, header in kept), default=0)
        generation = max(generation, self.floor())
        kept.sort(key=lambda item: (item[1].generation == generation, item[0]))
        num_current = sum(header.generation == generation for _, header in kept)
        first = len(kept) - min(num_current, max_blocks)
        removed.update(self.block_path(header.block_hash).name for _, header in kept[:first])
        for name in removed:
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
        return Recovered(
            generation=generation,
            entries=tuple((header.block_hash, header.checksum) for _, header in kept[first:]),
            num_removed=len(removed),
        )

    def close(self) -> None:
        """Give the folder up. The lock file stays: removing it would race with the next owner."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _examine(path: Path, layout: str, origin: str, nbytes: int) -> tuple[int, BlockHeader]:
    """Time of writing and header of a file that could be loaded, or TierMiss."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        header = BlockHeader.decode(os.pread(handle, HEADER_NBYTES, 0))
    finally:
        os.close(handle)
    check_header(header, layout, origin, nbytes)
    if path.name != f"{header.block_hash.hex()}.kv":
        raise TierMiss(MissKind.FOREIGN, f"the block in {path.name} is {header.block_hash.hex()}")
    if status.st_size != HEADER_NBYTES + nbytes:
        raise TierMiss(MissKind.TRUNCATED, f"{path.name} has {status.st_size} bytes")
    return status.st_mtime_ns, header


def check_header(header: BlockHeader, layout: str, origin: str, nbytes: int) -> None:
    """Raise TierMiss unless the rows are of this layout, model and arithmetic."""
    if header.layout_digest != layout:
        raise TierMiss(MissKind.FOREIGN, f"K/V layout {header.layout_digest}, not {layout}")
    if header.origin_digest != origin:
        raise TierMiss(MissKind.FOREIGN, f"computed by {header.origin_digest}, not {origin}")
    if header.nbytes != nbytes:
        raise TierMiss(MissKind.FOREIGN, f"a payload of {header.nbytes} bytes, not {nbytes}")
