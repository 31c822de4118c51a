"""The file of one block: a header that says whose bytes these are, then the packed layers.

All numbers are little-endian:

    offset  bytes  field
         0      8  magic, "BATONKV\\n"
         8      4  version of this format
        12      4  bytes of the header
        16     16  digest of the K/V layout
        32     16  digest of the origin: model identity and the arithmetic that computed the rows
        48      8  generation of the cache
        56     16  name of the block (its prefix hash)
        72      8  bytes of the payload
        80      8  XXH3-64 of the payload
        88      8  XXH3-64 of the 88 bytes before
"""

import struct
from importlib import metadata
from pathlib import Path
from typing import Self

import msgspec
import xxhash

from baton import __version__
from baton.core.digest import digest
from baton.core.layout import ModelInfo
from baton.runtime.tiers.miss import MissKind, TierMiss

MAGIC = b"BATONKV\n"
VERSION = 1
HEADER_NBYTES = 96
HASH_NBYTES = 16
_FIELDS = struct.Struct("<8sII16s16sQ16sQQ")
_SUM = struct.Struct("<Q")
assert _FIELDS.size + _SUM.size == HEADER_NBYTES


class BlockHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of itself."""

    layout_digest: str
    origin_digest: str
    generation: int
    block_hash: bytes
    nbytes: int
    checksum: int

    def encode(self) -> bytes:
        """The first bytes of the file."""
        if len(self.block_hash) != HASH_NBYTES:
            raise ValueError(f"a block name of {len(self.block_hash)} bytes, not {HASH_NBYTES}")
        data = _FIELDS.pack(
            MAGIC,
            VERSION,
            HEADER_NBYTES,
            bytes.fromhex(self.layout_digest),
            bytes.fromhex(self.origin_digest),
            self.generation,
            self.block_hash,
            self.nbytes,
            self.checksum,
        )
        return data + _SUM.pack(xxhash.xxh3_64_intdigest(data))

    @classmethod
    def decode(cls, data: bytes | bytearray) -> Self:
        """Read a header back. Raises TierMiss for anything that this version did not write."""
        if len(data) < HEADER_NBYTES:
            raise TierMiss(MissKind.TRUNCATED, f"{len(data)} bytes are no whole header")
        fields = bytes(data[: _FIELDS.size])
        magic, version, size, layout, origin, generation, name, nbytes, total = _FIELDS.unpack(
            fields
        )
        if magic != MAGIC:
            raise TierMiss(MissKind.FOREIGN, f"it begins with {magic!r}, not {MAGIC!r}")
        if (version, size) != (VERSION, HEADER_NBYTES):
            raise TierMiss(MissKind.FOREIGN, f"format version {version}, not {VERSION}")
        if _SUM.unpack_from(data, _FIELDS.size)[0] != xxhash.xxh3_64_intdigest(fields):
            raise TierMiss(MissKind.CORRUPT, "the header's checksum does not agree")
        return cls(
            layout_digest=layout.hex(),
            origin_digest=origin.hex(),
            generation=generation,
            block_hash=name,
            nbytes=nbytes,
            checksum=total,
        )


def origin_digest(info: ModelInfo) -> str:
    """What must agree before rows of an earlier life equal those that would be computed now.

    Beside the model it is the arithmetic: libraries and processors choose other kernels, which sum
    in another order. Reuse across that border would be plausible, and not bit-equal.
    """
    libraries = [f"{name} {_version(name)}" for name in ("torch", "numba", "numpy")]
    settings = [info.dtype, info.device, info.deterministic, __version__]
    return digest([info.identity.digest, settings, libraries, _processor()])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _processor() -> list[str]:
    """Kind and instruction sets of this machine's processor."""
    wanted = ("model name", "flags", "Features", "CPU part")
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    return [line for line in lines if line.partition("\t")[0].strip(": ") in wanted]
