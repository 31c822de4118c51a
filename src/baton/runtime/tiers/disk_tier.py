"""The tier of files, one per block, named by the block's hash; it outlives the worker.

A block is written under another name and then renamed, so that its name never shows a half of it.
Nothing is flushed to the device: after a crash of the machine a file may be short or torn, and
then it is a miss, because every load verifies the checksum of every byte. What would need a flush
is a promise that a block is still there, and a cache makes none.
"""

import contextlib
import os

from baton.core.layout import ModelInfo
from baton.runtime.dataplane.arena import Bytes
from baton.runtime.dataplane.checksum import checksum
from baton.runtime.tiers.block_file import HEADER_NBYTES, BlockHeader, origin_digest
from baton.runtime.tiers.folder import Recovered, TierFolder, check_header
from baton.runtime.tiers.miss import MissKind, TierMiss

_IOV_MAX = 1024
"""Views in one call of the kernel (limits.h)."""


class DiskTier:
    """Stores and loads blocks; who goes when it is full is decided by the worker's node.

    Blocks are given as `[layer][byte]`. `store` and `load` raise OSError when the file system
    refuses, and TierMiss for a file that must not be used.
    """

    def __init__(self, directory: str, worker_id: str, model: ModelInfo, max_blocks: int) -> None:
        self._folder = TierFolder(directory, worker_id)
        self._layout_digest = model.layout.digest
        self._origin = origin_digest(model)
        self._nbytes = model.layout.bytes_per_block
        self._max_blocks = max_blocks

    def recover(self) -> Recovered:
        """What earlier lives left; everything else that looks like a block is removed."""
        return self._folder.scan(self._layout_digest, self._origin, self._nbytes, self._max_blocks)

    def raise_floor(self, generation: int) -> None:
        """Blocks of a lower generation may not be recovered any more."""
        self._folder.raise_floor(generation)

    def store(self, block_hash: bytes, generation: int, layers: Bytes) -> int:
        """Write a block and return the checksum of its bytes."""
        runs = list(layers)
        total = checksum(runs)
        assert total is not None, "nobody stops it"
        header = BlockHeader(
            layout_digest=self._layout_digest,
            origin_digest=self._origin,
            generation=generation,
            block_hash=block_hash,
            nbytes=self._nbytes,
            checksum=total,
        ).encode()
        half = self._folder.half_path(block_hash)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(half, flags, 0o600)
        try:
            _write_all(handle, [memoryview(header), *(run.data for run in runs)])
            os.rename(half, self._folder.block_path(block_hash))
        except BaseException:
            with contextlib.suppress(OSError):
                half.unlink()
            raise
        finally:
            os.close(handle)
        return total

    def load(self, block_hash: bytes, generation: int, layers: Bytes) -> int:
        """Read a block into `layers` and return its checksum, which is that of the header too."""
        path, runs = self._folder.block_path(block_hash), list(layers)
        head = bytearray(HEADER_NBYTES)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise TierMiss(MissKind.ABSENT, f"{path.name} is gone") from error
        try:
            nbytes = _read_all(handle, [memoryview(head), *(run.data for run in runs)])
        finally:
            os.close(handle)
        header = BlockHeader.decode(head[:nbytes])
        check_header(header, self._layout_digest, self._origin, self._nbytes)
        if header.block_hash != block_hash:
            raise TierMiss(MissKind.FOREIGN, f"{path.name} holds {header.block_hash.hex()}")
        if header.generation != generation:
            raise TierMiss(
                MissKind.STALE,
                f"{path.name} is of generation {header.generation}, not {generation}",
            )
        if nbytes != HEADER_NBYTES + self._nbytes:
            raise TierMiss(MissKind.TRUNCATED, f"{path.name} ends after {nbytes} bytes")
        if checksum(runs) != header.checksum:
            raise TierMiss(MissKind.CORRUPT, f"the payload of {path.name} has another checksum")
        return header.checksum

    def remove(self, block_hash: bytes) -> None:
        """The block goes; a file that is gone already, or cannot go, is no matter."""
        with contextlib.suppress(OSError):
            self._folder.block_path(block_hash).unlink()

    def close(self) -> None:
        """Give the folder up; the files stay."""
        self._folder.close()


def _write_all(handle: int, views: list[memoryview]) -> None:
    """Write them one after another, however many calls the kernel needs."""
    while views := _after(views, os.writev(handle, views[:_IOV_MAX])):
        pass


def _read_all(handle: int, views: list[memoryview]) -> int:
    """Fill them one after another; returns how many bytes there were."""
    total = 0
    while views and (nbytes := os.readv(handle, views[:_IOV_MAX])):
        total += nbytes
        views = _after(views, nbytes)
    return total


def _after(views: list[memoryview], nbytes: int) -> list[memoryview]:
    """What is left of `views` after so many bytes."""
    for number, view in enumerate(views):
        if nbytes < view.nbytes:
            return [view[nbytes:], *views[number + 1 :]]
        nbytes -= view.nbytes
    return []
