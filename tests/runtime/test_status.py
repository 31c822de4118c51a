"""The cache column of the status screen: what a worker's last heartbeat says, in a few words."""

import msgspec
import pytest

from baton.core.cache import Tier, TierLoad
from baton.core.ids import Role
from baton.core.snapshot import LoadSnapshot
from baton.runtime.status import shown_cache


def tier(tier: Tier, num_named: int, num_hits: int) -> TierLoad:
    return TierLoad(
        tier=tier, num_blocks=200, num_named=num_named, num_reclaimable=0, num_hits=num_hits
    )


def snapshot(asked: int, *tiers: TierLoad) -> LoadSnapshot:
    return LoadSnapshot(
        worker_id="prefill-0",
        worker_epoch=1,
        role=Role.PREFILL,
        role_epoch=1,
        version=1,
        waiting=0,
        running=0,
        pending_tokens=0,
        free_blocks=0,
        reserved_blocks=0,
        cached_blocks=0,
        quarantined_blocks=0,
        total_blocks=200,
        inflight_nbytes=0,
        held_copies=0,
        counters={"prefix_blocks_asked": asked},
        tiers=tiers,
    )


@pytest.mark.parametrize(
    ("shot", "text"),
    [
        (snapshot(0, tier(Tier.MEMORY, 0, 0)), ""),
        (snapshot(8, tier(Tier.MEMORY, 10, 2)), "25% hits"),
        (
            snapshot(8, tier(Tier.MEMORY, 10, 6), tier(Tier.DISK, 50, 4)),
            "75% hits; disk 50% hits, 25% full",
        ),
        (
            msgspec.structs.replace(
                snapshot(0, tier(Tier.MEMORY, 10, 0), tier(Tier.DISK, 50, 0)),
                counters={"visible_blocks_asked": 8, "visible_blocks_found": 2},
            ),
            "25% visible; disk 25% full",
        ),
    ],
)
def test_the_cache_column(shot, text):
    assert shown_cache(shot) == text
