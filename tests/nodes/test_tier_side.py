"""History that memory gave up comes back from host and disk, and what is wrong there is a miss."""

import pytest

from baton.core.cache import Tier
from baton.core.events import CacheCleared, TierRecovered
from baton.core.messages import ClearCache
from tests.stage import Stage

MODES = [{"prefill": 1, "decode": 1}, {"mixed": 1}]
SMALL = {"blocks": 16, "block_size": 4, "growth": 1}


def counters(stage: Stage) -> dict[str, int]:
    return stage.source.node.snapshot().counters


def table(stage: Stage, tier: Tier):
    return next(t for t in stage.source.node.context.memory.lower if t.tier is tier)


def fill(stage: Stage, count: int = 3, first: int = 100) -> None:
    """Other prompts, long enough to push everything before them out of memory."""
    for number in range(count):
        stage.submit(f"fill{first}-{number}", 36, first=first + 100 * number)
        stage.finish_right()


def ask_again(stage: Stage, request_id: str = "again", prompt: int = 30) -> int:
    """The first prompt once more; returns its cached tokens."""
    stage.submit(request_id, prompt)
    stage.finish_right()
    return stage.started(request_id).cached_tokens


def gone_from_memory(stage: Stage) -> bool:
    memory = stage.source.node.context.memory
    hashes = memory.hashes(stage.requests["r"], stage.requests["r"].prompt_token_ids)
    return memory.pool.lookup(hashes[0]) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tiers", [{"host": 64}, {"disk": 64}, {"host": 8, "disk": 64}])
def test_a_prefix_that_memory_gave_up_comes_back(mode, tiers):
    stage = Stage(**SMALL, **mode, **tiers)
    stage.submit("r", 30)
    stage.finish_right()
    fill(stage)
    assert gone_from_memory(stage)
    assert ask_again(stage) == 28, "seven whole blocks, and nothing of them was computed"
    hits = sum(t.num_hits for t in stage.source.node.context.memory.lower)
    assert hits == 7
    assert stage.traced("tier_load", "again")


@pytest.mark.parametrize("mode", MODES)
def test_without_lower_tiers_it_is_computed_again(mode):
    stage = Stage(**SMALL, **mode)
    stage.submit("r", 30)
    stage.finish_right()
    fill(stage)
    assert gone_from_memory(stage)
    assert ask_again(stage) == 0
    assert not stage.traced("tier_load")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tier", ["host", "disk"])
def test_a_corrupt_block_is_a_miss_and_what_stands_before_it_is_used(mode, tier):
    stage = Stage(**SMALL, **mode, **{tier: 64})
    stage.submit("r", 30)
    stage.finish_right()
    fill(stage)
    lower = table(stage, Tier(tier))
    memory = stage.source.node.context.memory
    hashes = memory.hashes(stage.requests["r"], stage.requests["r"].prompt_token_ids)
    slot = lower.lookup(hashes[3])
    if tier == "host":
        stage.source.tiers._host[slot][2][0, 0] ^= 1
    else:
        stage.world.disks[stage.source.worker_id][hashes[3]].rows[0, 0] ^= 1
    assert ask_again(stage) == 12
    assert (lower.num_corrupt, lower.num_misses) == (1, 1)
    assert counters(stage)[f"{tier}_corrupt"] == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_file_that_is_gone_is_a_miss_and_the_request_does_not_ask_again(mode):
    stage = Stage(**SMALL, **mode, disk=64)
    stage.submit("r", 30)
    stage.finish_right()
    fill(stage)
    stage.world.disks[stage.source.worker_id].clear()
    assert ask_again(stage) == 0
    assert len(stage.traced("tier_load", "again")) == 1
    assert table(stage, Tier.DISK).num_misses == 7


def test_a_full_host_demotes_to_disk_and_a_full_disk_gives_up():
    stage = Stage(**SMALL, host=8, disk=16)
    for number in range(8):
        stage.submit(f"p{number}", 36, first=100 * number)
        stage.finish_right()
    host, disk = table(stage, Tier.HOST), table(stage, Tier.DISK)
    assert host.num_evicted and disk.num_evicted
    assert host.num_named <= 8 and disk.num_named == 16
    for lower in (host, disk):
        lower.check()


@pytest.mark.parametrize("mode", MODES)
def test_a_host_smaller_than_what_memory_holds_is_left_alone(mode):
    stage = Stage(blocks=64, block_size=4, growth=1, host=8, **mode)
    stores = []
    for turn in range(4):
        for number in range(4):
            stage.submit(f"p{turn}.{number}", 36, first=100 * number)
            stage.finish_right()
        stores.append(table(stage, Tier.HOST).num_stores)
    assert stores[0] > 8 and stores[1:] == stores[:1] * 3
    assert stage.end("p3.0").usage.cached_tokens == 32, "memory has it all the time"


def test_a_disk_outlives_its_worker():
    stage = Stage(**SMALL, disk=64)
    stage.submit("r", 30)
    stage.finish_right()
    stage.run_for(1_000_000)
    stage.crash(stage.source)
    stage.until(lambda: "prefill-0" not in stage.world.workers)
    stage.until(lambda: "prefill-0" in stage.world.workers)
    stage.run_for(2_000_000)
    assert stage.source.epoch == 2 and table(stage, Tier.DISK).num_named >= 7
    assert ask_again(stage) == 28


def test_a_clear_empties_every_tier_and_what_is_in_use_never_becomes_history():
    stage = Stage(**SMALL, host=64, disk=64)
    stage.submit("r", 30)
    stage.finish_right()
    stage.submit("s", 30, first=200)
    stage.until(lambda: stage.source.node.queue.batch)
    stage.hand(stage.source.worker_id, ClearCache(generation=1))
    memory = stage.source.node.context.memory
    assert memory.generation == 1
    assert len(memory.pool.history) == 0
    stage.finish_right()
    assert len(memory.pool.history) == 0, "what was computed before the clear is not named after it"
    assert all(t.num_named == 0 for t in memory.lower)
    assert ask_again(stage) == 0
    assert ask_again(stage, "third") == 28


def test_a_clear_is_remembered_by_the_disk_however_it_was_heard_of():
    """Here by the grant alone, which is of a destination that had cleared already."""
    stage = Stage(**SMALL, disk=64)
    stage.submit("r", 30)
    stage.finish_right()
    stage.run_for(1_000_000)
    stage.lose = lambda number, sender, receiver, message: (
        isinstance(message, ClearCache) and receiver == "prefill-0"
    )
    stage.world.feed_router(CacheCleared())
    stage.until(lambda: stage.destination.node.context.cache_generation == 1)
    stage.submit("s", 30, first=200)
    stage.until(lambda: stage.source.node.context.cache_generation == 1)
    stage.finish_right()
    disk = stage.world.disks["prefill-0"]
    assert disk.floor == 1
    assert {file.generation for file in disk.values()} <= {1}


def test_older_files_are_dropped_and_newer_ones_raise_the_generation():
    stage = Stage(**SMALL, disk=64)
    node, name = stage.source.node, bytes(16)
    stage.hand(stage.source.worker_id, ClearCache(generation=2))
    for generation, num_named in ((1, 0), (3, 1)):
        event = TierRecovered(tier=Tier.DISK, generation=generation, entries=((name, 7),))
        stage.source.feed(event)
        assert table(stage, Tier.DISK).num_named == num_named
    assert node.context.cache_generation == 3


def test_loading_is_left_where_computing_is_faster():
    stage = Stage(**SMALL, disk=64)
    stage.submit("r", 30)
    stage.finish_right()
    fill(stage)
    speed = stage.source.node.tiers._speeds[Tier.DISK]
    speed.observe(1.0, 1_000_000.0)
    assert ask_again(stage) == 0
    assert counters(stage)["tier_loads_too_slow"] > 0


def test_a_request_that_is_cancelled_while_its_prefix_loads_leaves_nothing():
    for mode in MODES:
        stage = Stage(**SMALL, **mode, disk=64)
        stage.submit("r", 30)
        stage.finish_right()
        fill(stage)
        stage.submit("again", 30)
        stage.until(lambda: stage.traced("tier_load", "again"))  # noqa: B023
        stage.world.cancel("again", "disconnect")
        stage.settle()


def test_every_tier_tells_its_load():
    stage = Stage(**SMALL, host=8, disk=64)
    stage.submit("r", 30)
    stage.finish_right()
    fill(stage)
    ask_again(stage)
    loads = {load.tier: load for load in stage.source.node.snapshot().tiers}
    assert list(loads) == [Tier.MEMORY, Tier.HOST, Tier.DISK]
    assert loads[Tier.MEMORY].num_blocks == 16
    assert loads[Tier.HOST].num_blocks == 8 and loads[Tier.DISK].num_blocks == 64
    assert sum(load.num_hits for load in loads.values()) >= 7
    assert loads[Tier.DISK].bytes_per_us > 0
    for load in loads.values():
        assert load.num_reclaimable <= load.num_named <= load.num_blocks


def test_a_block_that_the_host_holds_is_cheaper_to_give_up():
    stage = Stage(**SMALL, host=64, eviction="cost_aware")
    stage.submit("r", 30)
    stage.finish_right()
    fill(stage)
    ask_again(stage)
    tiers, memory = stage.source.node.tiers, stage.source.node.context.memory
    below = next(name for name in memory.lower[0].history)
    assert 0 < tiers._price_us(below, 3) < tiers._price_us(b"nowhere", 3)
    assert tiers._price_us(b"nowhere", 3) == tiers._price_below_us(below, 3)
