"""Workers tell the router what they hold; the checkers compare the two at every quiet moment."""

from baton.config import CacheConfig
from baton.core.cache import Tier
from baton.core.messages import CacheChanges, CacheHoldings, CacheReplay
from tests.stage import Stage, uneven_plan


def holding(stage: Stage, worker_id: str) -> int:
    """Blocks that the router believes to be in a worker's memory."""
    return stage.world.router.context.holdings.holdings(worker_id)[Tier.MEMORY]


def served(**changes) -> Stage:
    stage = Stage(uneven_plan(**changes))
    stage.submit("r", 33)
    stage.serve()
    stage.settle(2_000_000)
    return stage


def test_the_router_knows_who_holds_how_much_of_a_prompt():
    stage = served()
    router = stage.world.router
    names = router.context.names(stage.requests["r"], stage.requests["r"].prompt_token_ids)
    assert len(names) == 8
    match = router.context.holdings.match(names)
    assert match.depths == match.memory_depths == {"prefill-0": 8, "decode-1": 8}
    assert router.counters["cache_words_applied"] >= 2
    assert router.counters["cache_words_gap"] == router.counters["cache_replays"] == 0


def test_a_lost_last_change_is_noticed_at_the_next_heartbeat():
    stage = Stage(uneven_plan())
    stage.lose = lambda _n, _s, _r, message: isinstance(message, CacheChanges)
    stage.submit("r", 33)
    stage.serve()
    assert holding(stage, "decode-1") == 0
    stage.settle(2_000_000)
    assert holding(stage, "decode-1") == holding(stage, "prefill-0") == 8
    replays = stage.world.router.counters["cache_replays"]
    assert 2 <= replays <= 10, "once per retry time and worker"


def test_a_change_after_a_lost_one_waits_for_it():
    stage = Stage(uneven_plan())
    lost = []

    def lose(_number, sender, _receiver, message):
        first = isinstance(message, CacheChanges) and sender not in lost
        lost.extend([sender] * first)
        return first

    stage.lose = lose
    stage.submit("r", 33)
    stage.submit("s", 20, first=500)
    stage.serve()
    stage.settle(2_000_000)
    assert sorted(lost) == ["decode-1", "prefill-0"]
    assert stage.world.router.counters["cache_words_gap"] > 0
    assert holding(stage, "prefill-0") == 8 + 5


def test_claims_of_a_dead_life_are_gone_before_the_next_route():
    stage = served()
    stage.crash(stage.world.workers["prefill-0"], down_us=50_000)
    stage.until(lambda: stage.world.router.fleet.get("prefill-0") is None)
    assert holding(stage, "prefill-0") == 0 and holding(stage, "decode-1") == 8
    stage.until(lambda: stage.world.router.fleet.get("prefill-0", 2))
    assert holding(stage, "prefill-0") == 0, "a new life begins with nothing"
    stage.submit("again", 33)
    stage.serve()
    stage.settle(2_000_000)
    assert holding(stage, "prefill-0") == 8


def test_a_worker_that_may_not_announce_is_silent():
    stage = served(cache=CacheConfig(announce=False))
    words = CacheChanges | CacheReplay | CacheHoldings
    assert not [m for _, _, m in stage.sent if isinstance(m, words)]
    assert holding(stage, "prefill-0") == 0
    assert stage.world.router.counters["cache_words_applied"] == 0
    snapshots = [view.snapshot for view in stage.world.router.fleet]
    assert [s.cache_sequence for s in snapshots if s] == [0, 0]


def test_everything_that_is_held_is_told_when_the_tail_is_too_short():
    stage = served()
    worker = stage.world.workers["decode-1"]
    worker.node.announcer.journal._tail.clear()
    stage.world.router.context.holdings.clear("decode-1")
    stage.world.router.holdings.feed("decode-1").next_sequence = 1
    stage.settle(2_000_000)
    assert holding(stage, "decode-1") == 8
    assert worker.node.counters["cache_replays"] == 1
