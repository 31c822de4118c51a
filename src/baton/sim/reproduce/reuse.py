"""How much of a trace's prompts is found in a cache of N blocks, and the cache-size curve (R18).

One colocated worker serves one request after another; what it did not compute is the hit. The
curve is a property of trace and eviction alone, so no time enters it.
"""

from functools import lru_cache

from baton.sim.reproduce.check import Check, near
from baton.sim.reproduce.data import Data, run
from baton.sim.simulate.hardware import MACHINES
from baton.sim.simulate.report import Report

ENDLESS = 300_000
"""More blocks than either trace has different ones."""
TOKEN_RATIOS = {
    "conversation": {1000: 0.045, 5000: 0.114, 10_000: 0.216, 30_000: 0.332, 50_000: 0.362},
    "synthetic": {1000: 0.086, 5000: 0.285, 10_000: 0.432, 30_000: 0.636},
}
"""Published under LRU of N blocks of 512 tokens, weighted by tokens."""
ENDLESS_RATIOS = {"conversation": (0.374, 0.366), "synthetic": (0.651, 0.640)}
"""By tokens, and by blocks where a partly filled one counts as one."""
CACHE_3M = 3_000_000 // 512
CACHE_50M = 50_000_000 // 512
BLOCK_RATIOS_3M = {"conversation": 0.1355, "synthetic": 0.309}


@lru_cache(maxsize=32)
def hits(data: Data, trace: str, num_blocks: int, eviction: str = "lru") -> Report:
    """A whole trace through one worker of so many blocks."""
    options = data.options(trace, whole_blocks=True, concurrency=1)
    cluster = ["cluster.prefill=0", "cluster.decode=0", "cluster.mixed=1"]
    return run(
        options,
        MACHINES["a100x8-llama70b"],
        [*cluster, f"cache.eviction={eviction}"],
        num_blocks=num_blocks,
    )


def reuse_checks(data: Data) -> list[Check]:
    """Every size of the published table."""
    checks = []
    for trace, ratios in TOKEN_RATIOS.items():
        for num_blocks, published in ratios.items():
            measured = hits(data, trace, num_blocks).token_hit_ratio
            what = f"{trace}: rows reused, {num_blocks} blocks"
            checks.append(near("reuse", what, published, measured, 0.005))
        tokens, blocks = ENDLESS_RATIOS[trace]
        found = hits(data, trace, ENDLESS)
        what = f"{trace}: rows reused, endless cache"
        checks.append(near("reuse", what, tokens, found.token_hit_ratio, 0.005))
        what = f"{trace}: blocks reused, endless cache"
        checks.append(near("reuse", what, blocks, found.block_hit_ratio, 0.005))
    return checks


def curve_checks(data: Data) -> list[Check]:
    """3M tokens reach less than half of what an endless cache finds, 50M nearly all of it."""
    checks = []
    for trace, published in BLOCK_RATIOS_3M.items():
        most = hits(data, trace, ENDLESS).block_hit_ratio
        small = hits(data, trace, CACHE_3M).block_hit_ratio
        large = hits(data, trace, CACHE_50M).block_hit_ratio
        what = f"{trace}: blocks reused, 3M tokens"
        checks.append(near("r18", what, published, small, 0.01))
        checks.append(
            Check(
                target="r18",
                what=f"{trace}: the same, share of endless",
                published="< 0.5",
                measured=small / most if most else 0.0,
                high=0.5,
            )
        )
        checks.append(
            Check(
                target="r18",
                what=f"{trace}: 50M tokens, share of endless",
                published="0.992" if trace == "conversation" else "1",
                measured=large / most if most else 0.0,
                low=0.98,
            )
        )
    return checks
