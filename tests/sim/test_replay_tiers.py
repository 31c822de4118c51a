"""Replays with tiers below memory: a prefix that memory gave up costs its load, not its compute."""

import pytest
from tests.policy.profiles import make_profile

from baton.config import CacheConfig
from baton.core.ids import Role
from baton.errors import ConfigError
from baton.sim.replay import ReplaySetup, replay_counted
from baton.sim.replay.setup import TierSpeeds
from baton.workload.request import Workload, WorkloadRequest

PROFILE = make_profile()
BLOCK_NBYTES = ReplaySetup().layout(PROFILE).bytes_per_block


def served(speeds: TierSpeeds | None = None, **cache):
    """One prompt, others that push it out of memory, and the first one again."""
    hashes = [(1, 2), (11, 12), (21, 22), (31, 32), (1, 2)]
    requests = tuple(
        WorkloadRequest(
            arrival_us=number * 2_000_000,
            num_prompt_tokens=100,
            num_output_tokens=2,
            hash_ids=ids,
        )
        for number, ids in enumerate(hashes)
    )
    workload = Workload(name="w", source="a test", requests=requests, tokens_per_hash=64)
    setup = ReplaySetup(
        roles=(Role.MIXED,),
        num_blocks=16,
        cache=CacheConfig(**cache),
        tier_speeds=speeds or TierSpeeds(),
    )
    records, _ = replay_counted(workload, setup, PROFILE)
    return records


@pytest.mark.parametrize(
    "cache",
    [
        {"host_nbytes": 64 * BLOCK_NBYTES},
        {"disk_nbytes": 64 * BLOCK_NBYTES, "disk_dir": "unused"},
    ],
)
def test_what_a_tier_holds_is_loaded_instead_of_computed(cache):
    without, within = served()[-1], served(**cache)[-1]
    assert within.ttft_us < without.ttft_us


def test_nobody_waits_for_stores_that_never_end():
    slow = TierSpeeds(host_bytes_per_us=1e-3)
    alone, beside = served(), served(slow, host_nbytes=64 * BLOCK_NBYTES)
    assert [r.ttft_us for r in beside[:-1]] == [r.ttft_us for r in alone[:-1]]
    # The copies under way still pin the first prompt's beginning, so some of it is found.
    assert 0 < beside[-1].ttft_us < alone[-1].ttft_us


def test_a_speed_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"tier_speeds.host_bytes_per_us is not positive"):
        ReplaySetup(tier_speeds=TierSpeeds(host_bytes_per_us=0.0))
