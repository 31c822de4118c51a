"""How many blocks the lower tiers hold, from the bytes that the configuration gives them."""

import msgspec

from baton.config import CacheConfig
from baton.core.layout import KVLayout
from baton.core.units import shown_nbytes
from baton.errors import ConfigError
from baton.runtime.tiers.block_file import HEADER_NBYTES


class TierCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks per tier of one worker; 0 is no such tier."""

    num_host_blocks: int = 0
    num_disk_blocks: int = 0
    host_nbytes: int = 0
    disk_nbytes: int = 0

    def __str__(self) -> str:
        parts = [
            f"{name} tier of {count} blocks ({shown_nbytes(nbytes)})"
            for name, count, nbytes in (
                ("host", self.num_host_blocks, self.host_nbytes),
                ("disk", self.num_disk_blocks, self.disk_nbytes),
            )
            if count
        ]
        return ", ".join(parts)


def tier_capacity(cache: CacheConfig, layout: KVLayout) -> TierCapacity:
    """What `cache.host_nbytes` and `cache.disk_nbytes` buy in this layout.

    Raises ConfigError for a tier that is asked for and cannot hold one block.
    """
    block_nbytes = layout.bytes_per_block
    file_nbytes = HEADER_NBYTES + block_nbytes
    host, disk = cache.host_nbytes // block_nbytes, cache.disk_nbytes // file_nbytes
    _require("cache.host_nbytes", cache.host_nbytes, block_nbytes)
    _require("cache.disk_nbytes", cache.disk_nbytes, file_nbytes)
    return TierCapacity(
        num_host_blocks=host,
        num_disk_blocks=disk,
        host_nbytes=host * block_nbytes,
        disk_nbytes=disk * file_nbytes,
    )


def _require(field: str, nbytes: int, least: int) -> None:
    if 0 < nbytes < least:
        raise ConfigError(
            f"{field} {nbytes} holds no block, which takes {least} bytes with this model; raise it "
            "to a multiple of that, or set it to 0 for no such tier"
        )
