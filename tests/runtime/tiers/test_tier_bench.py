"""The measurement of tiers copies every block every way and compares with the limit."""

from baton.bench.tiers import measure_tiers
from baton.core.layout import KVLayout
from baton.runtime.dataplane.nixl import is_installed


async def test_every_way_is_measured_beside_its_limit():
    layout = KVLayout(num_layers=2, num_kv_heads=2, head_dim=16, block_size=16)
    rows = await measure_tiers(layout, num_blocks=8, rounds=2)
    of_nixl = [row for row in rows if row.name.endswith(", by NIXL")]
    assert [row.name.partition(" to ")[0] for row in rows if row not in of_nixl] == [
        "memory",
        "host",
        "memory",
        "disk",
        "disk",
    ]
    assert len(of_nixl) == (3 if is_installed() else 0)
    assert all(row.files_ratio > 0 for row in of_nixl)
    for row in rows:
        assert row.gbps > 0 and row.limit_gbps > 0 and row.ratio > 0 and row.block_us > 0
