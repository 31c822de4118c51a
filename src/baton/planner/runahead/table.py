"""KVR-P: shares that were searched once, interpolated for other lengths of the same setting."""

from collections.abc import Sequence

import msgspec
import numpy as np

from baton.core.digest import digest
from baton.errors import ConfigError
from baton.planner.runahead.partition import Partition, scaled_partition


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a table of partitions belongs to; another value of any makes it say nothing (0x0CD)."""

    model: str
    num_processes: int
    kernel: str
    dtype: str
    topology: str
    cache_layout: str


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The best partition that was found for one prompt length."""

    num_rows: int
    shares: tuple[float, ...]


class PartitionTable(msgspec.Struct, frozen=True, kw_only=True):
    """Searched lengths, ascending, of one setting."""

    manifest: Manifest
    entries: tuple[Searched, ...]

    def __post_init__(self) -> None:
        lengths = [one.num_rows for one in self.entries]
        if not lengths or sorted(set(lengths)) != lengths:
            raise ConfigError(f"partition table: lengths {lengths} must ascend, at least one")
        for one in self.entries:
            if len(one.shares) != self.manifest.num_processes:
                raise ConfigError(
                    f"partition table: {len(one.shares)} shares of {one.num_rows} rows for "
                    f"{self.manifest.num_processes} processes"
                )

    @property
    def digest(self) -> str:
        """Names table and setting together."""
        return digest(self)

    def partition(self, num_rows: int, manifest: Manifest) -> Partition:
        """Shares between the neighbouring lengths, linearly; beyond both ends refused."""
        if manifest != self.manifest:
            changed = [
                f"{name} {getattr(manifest, name)!r}, searched for {getattr(self.manifest, name)!r}"
                for name in manifest.__struct_fields__
                if getattr(manifest, name) != getattr(self.manifest, name)
            ]
            raise ConfigError(f"partition table: {'; '.join(changed)}; search it anew")
        lengths = [one.num_rows for one in self.entries]
        if not lengths[0] <= num_rows <= lengths[-1]:
            raise ConfigError(
                f"partition table: {num_rows} rows are outside {lengths[0]} to {lengths[-1]}; "
                "search that length"
            )
        shares = np.array([one.shares for one in self.entries])
        found = [float(np.interp(num_rows, lengths, column)) for column in shares.T]
        return scaled_partition(found, num_rows)


def searched(partitions: Sequence[Partition]) -> tuple[Searched, ...]:
    """Entries of a table."""
    return tuple(
        Searched(num_rows=one.num_rows, shares=tuple(n / one.num_rows for n in one.rows))
        for one in sorted(partitions, key=lambda one: one.num_rows)
    )
