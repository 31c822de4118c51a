"""What an operator is shown of the pool is what the workers hold, in every number."""

import msgspec
import pytest

from baton.core.cache import Tier
from baton.core.events import CacheCleared
from baton.nodes.cache_view import CacheView, view_cache
from baton.nodes.history_copy import Motive
from tests.nodes.test_copies import COLD, start, warm_stage
from tests.stage import Stage


def shown(stage: Stage) -> CacheView:
    """The pool after heartbeats, as it goes over HTTP and comes back."""
    stage.settle(2_000_000)
    view = view_cache(stage.world.router, stage.world.router_now_us)
    return msgspec.json.decode(msgspec.json.encode(view), type=CacheView)


def test_blocks_hits_and_claims_are_those_of_the_run():
    stage = Stage()
    for request_id in ("first", "again"):
        stage.submit(request_id, prompt=14)
        stage.finish_right()
    view = shown(stage)
    assert (view.milestone, view.eviction, view.generation) == ("prompt", "lru", 0)
    by_worker = {worker.worker_id: worker for worker in view.workers}
    assert list(by_worker) == [stage.source.worker_id, stage.destination.worker_id]
    for worker in by_worker.values():
        (memory,) = worker.tiers
        # 14 tokens are three full blocks of 4, which the second request finds.
        assert (memory.tier, memory.num_named, memory.num_claimed) == (Tier.MEMORY, 3, 3)
        assert memory.num_reclaimable == 3
        assert memory.reclaimable_nbytes == 3 * worker.bytes_per_block
        assert memory.capacity_nbytes == memory.num_blocks * worker.bytes_per_block
    computing, decoding = by_worker.values()
    assert (computing.tiers[0].num_hits, computing.num_asked) == (3, 6)
    assert computing.tiers[0].hit_ratio == 0.5
    assert (computing.num_handed, computing.num_visible) == (0, 0)
    # Nothing of a prompt is computed where it is handed to, so nothing is hit there.
    assert (decoding.tiers[0].num_hits, decoding.num_asked) == (0, 0)
    assert (decoding.num_handed, decoding.num_visible) == (6, 3)
    assert (view.index.num_blocks, view.index.num_claims) == (3, 6)
    assert view.index.nbytes > 0
    assert not any(view.totals.values())


def test_a_cleared_pool_is_empty_under_the_next_generation():
    stage = Stage()
    stage.submit("first", prompt=14)
    stage.finish_right()
    assert shown(stage).index.num_claims == 6
    stage.world.feed_router(CacheCleared())
    view = shown(stage)
    assert view.generation == 1
    assert view.totals["cache_clears"] == 1
    assert {worker.generation for worker in view.workers} == {1}
    assert view.index.num_claims == 0
    assert {tier.num_named for worker in view.workers for tier in worker.tiers} == {0}


def test_a_copy_is_shown_while_it_runs_and_counted_at_its_end():
    stage = warm_stage()
    copy = start(stage, "decode-2", COLD)
    stage.run_for(100)
    (copying,) = view_cache(stage.world.router, stage.world.router_now_us).copies
    assert (copying.motive, copying.source, copying.destination) == ("replicate", "decode-2", COLD)
    assert (copying.num_tokens, copying.state) == (copy.num_tokens, copy.state) == (16, "RESERVING")
    assert 0 < copying.age_us < 10_000
    view = shown(stage)
    assert view.copies == ()
    assert (view.totals["copies_replicate"], view.totals["copies_inserted"]) == (1, 1)
    assert view.index.num_claims == 3 * 4
    layout = stage.world.workers[COLD].node.context.layout
    assert view.totals["copied_nbytes"] == 4 * layout.bytes_per_block


def test_no_token_of_a_prompt_is_shown():
    stage = Stage()
    stage.submit("first", prompt=14, first=7_001)
    stage.finish_right()
    text = msgspec.json.encode(shown(stage)).decode()
    for token in range(7_001, 7_015):
        assert str(token) not in text


@pytest.mark.parametrize("motive", Motive)
def test_every_motive_of_a_copy_has_a_total(motive):
    assert f"copies_{motive}" in shown(Stage()).totals


def test_hot_prefixes_are_those_that_prompts_found_again():
    stage = Stage()
    for number in range(3):
        stage.submit(f"r{number}", prompt=14)
        stage.finish_right()
        stage.settle(1_000_000)
    (hot,) = shown(stage).hot
    # The first prompt found nothing; two later ones found three blocks of 4 tokens.
    assert 1.5 < hot.hits <= 2
    assert hot.num_tokens == 12
    assert set(hot.owners) == {
        (stage.source.worker_id, Tier.MEMORY),
        (stage.destination.worker_id, Tier.MEMORY),
    }
    names = set(stage.world.router.context.holdings)
    assert hot.name in {name.hex()[:16] for name in names}
