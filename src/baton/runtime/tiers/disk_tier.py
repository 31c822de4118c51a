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
from baton.runtime.tiers.file_mover import Driver, open_mover
from baton.runtime.tiers.folder import Recovered, TierFolder, check_header
from baton.runtime.tiers.miss import MissKind, TierMiss


class DiskTier:
    """Stores and loads blocks; who goes when it is full is decided by the worker's node.

    Blocks are given as `[layer][byte]`. `store` and `load` raise OSError when the file system
    refuses, and TierMiss for a file that must not be used. `driver` is `cache.disk_driver`; names,
    files and checks are the same with each, and each finds what the other has stored.
    """

    def __init__(
        self,
        directory: str,
        worker_id: str,
        model: ModelInfo,
        max_blocks: int,
        *,
        driver: Driver = "files",
    ) -> None:
        self._mover = open_mover(driver)
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
        total = checksum(list(layers))
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
            self._mover.write(handle, header, layers)
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
        path = self._folder.block_path(block_hash)
        head = bytearray(HEADER_NBYTES)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise TierMiss(MissKind.ABSENT, f"{path.name} is gone") from error
        try:
            nbytes = self._mover.read(handle, head, layers)
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
        if checksum(list(layers)) != header.checksum:
            raise TierMiss(MissKind.CORRUPT, f"the payload of {path.name} has another checksum")
        return header.checksum

    def remove(self, block_hash: bytes) -> None:
        """The block goes; a file that is gone already, or cannot go, is no matter."""
        with contextlib.suppress(OSError):
            self._folder.block_path(block_hash).unlink()

    def close(self) -> None:
        """Give the folder up; the files stay."""
        self._mover.close()
        self._folder.close()
