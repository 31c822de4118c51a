"""The return path of decode history, prefixes fetched before a prefill, and a cleared cache."""

from typing import Any

from msgspec.structs import replace

from baton.config import CacheConfig, RouterConfig
from baton.core.cache import Milestone
from baton.core.events import CacheCleared, Cancelled, Tick
from baton.core.messages import ClearCache, Seal
from baton.nodes.history_copy import Motive
from baton.protocol.request import RequestState
from tests.stage import Stage, uneven_plan

BOTH_WAYS = CacheConfig(milestone=Milestone.BIDIRECTIONAL)
QUICK = {"lease_ms": 1000, "retry_ms": 50}


def stage_of(*roles: str, **options: Any) -> Stage:
    """A deployment whose heartbeats have shown what its workers measured of one request."""
    stage = Stage(uneven_plan(*roles, transfer=QUICK, num_blocks=64, **options))
    stage.submit("warm-up", 9, first=900, max_tokens=2)
    stage.finish_right()
    stage.run_for(500_000)
    return stage


def talk(stage: Stage, turns: int, answer: int = 8, new: int = 3) -> list[int]:
    """One conversation; the rows of each turn's prompt that were reused at the prefill worker."""
    prompt, cached = list(range(10)), []
    for turn in range(turns):
        name = f"turn-{turn}"
        stage.submit(name, prompt, max_tokens=answer, ignore_eos=True)
        stage.serve()
        stage.until(lambda: not stage.world.router.copies)
        stage.assert_right(name)
        cached.append(stage.end(name).usage.cached_tokens)
        prompt += stage.tokens(name) + [500 + 10 * turn + i for i in range(new)]
    return cached


def test_returned_history_grows_the_prefill_side_with_every_turn():
    """Turn t finds every whole block of the text so far, its last token aside."""
    stage = stage_of(cache=BOTH_WAYS)
    cached = talk(stage, 4)
    known = [0, 10 + 8 - 1, 10 + 2 * 8 + 3 - 1, 10 + 3 * 8 + 2 * 3 - 1]
    assert cached == [rows // 4 * 4 for rows in known]
    assert stage.world.router.counters["copies_return"] == 4
    stage.finish_right()


def test_without_the_return_path_only_prompts_are_found():
    stage = stage_of(cache=CacheConfig(milestone=Milestone.DECODE))
    known = [0, 10, 10 + 8 + 3, 10 + 2 * (8 + 3)]
    assert talk(stage, 4) == [rows // 4 * 4 for rows in known]
    assert not stage.world.router.counters["copies_return"]


def test_a_return_is_priced_and_may_be_declined():
    """Nobody goes on from a history: after a while moving one back costs more than it spares."""
    stage = stage_of(cache=BOTH_WAYS)
    for number in range(40):
        stage.submit(f"r{number}", 9, first=20 * number, max_tokens=24, ignore_eos=True)
        stage.serve()
    priced = [t.data for _, _, t in stage.traced("return_priced")]
    assert priced[1]["pays"] and not priced[-1]["pays"], priced
    assert priced[-1]["saved_us"] < priced[-1]["cost_us"]
    assert stage.world.router.counters["returns_declined"]
    stage.finish_right()


def test_a_lost_return_costs_the_next_turn_its_reuse_and_nothing_else():
    stage = stage_of(cache=BOTH_WAYS)
    stage.lose = lambda number, sender, receiver, message: (
        isinstance(message, Seal) and message.fence.request_id.startswith("copy/")
    )
    assert talk(stage, 2) == [0, 8]
    assert stage.world.router.counters["copies_given_up"] == 2
    stage.finish_right()


def fetched(stage: Stage, prompt: list[int], num_blocks: int) -> bool:
    """The waiting request's prefix is fetched from the decode worker to the cold prefill worker."""
    router = stage.world.router
    record = next(iter(router.records.values()))
    return router.histories.fetch(record, "decode-2", "prefill-1", num_blocks)


def test_a_fetched_prefix_is_reused_and_the_answer_is_right():
    stage = stage_of("prefill", "prefill", "decode")
    prompt = list(range(18))
    stage.submit("first", prompt, max_tokens=2)
    stage.finish_right()
    stage.crash(stage.world.workers["prefill-0"], down_us=60_000_000)
    stage.run_for(10_000)
    stage.world.router.context.waiting.clear()
    original = stage.world.router._attempts.route_waiting
    stage.world.router._attempts.route_waiting = lambda: None
    stage.submit("second", prompt)
    stage.until(lambda: stage.world.router.records)
    stage.world.router.context.waiting.remove("second")
    assert fetched(stage, prompt, 4)
    stage.world.router._attempts.route_waiting = original
    stage.world.feed_router(Tick())
    stage.serve()
    stage.assert_right("second")
    assert stage.end("second").usage.cached_tokens == 16
    assert stage.world.router.counters[f"copies_{Motive.FETCH}"] == 1


def test_a_cleared_cache_is_reused_by_nobody():
    stage = stage_of(cache=BOTH_WAYS)
    talk(stage, 2)
    stage.world.feed_router(CacheCleared())
    stage.run_for(1_000_000)
    assert stage.world.router.context.holdings.num_claims == 0
    for worker in stage.world.workers.values():
        assert worker.node.context.memory.pool.num_cached == 0
    stage.submit("again", 10)
    stage.finish_right()
    assert stage.end("again").usage.cached_tokens == 0


def test_a_lost_word_of_the_clear_is_repeated():
    stage = stage_of(cache=BOTH_WAYS)
    talk(stage, 1)
    lost: list[Any] = []

    def lose_two(number: int, sender: str, receiver: str, message: Any) -> bool:
        if isinstance(message, ClearCache) and len(lost) < 2:
            lost.append(message)
            return True
        return False

    stage.lose = lose_two
    stage.world.feed_router(CacheCleared())
    stage.run_for(1_000_000)
    assert len(lost) == 2
    generations = {w.node.snapshot().cache_generation for w in stage.world.workers.values()}
    assert generations == {1}


def test_a_worker_that_joins_later_learns_of_the_clear():
    stage = stage_of(cache=BOTH_WAYS)
    stage.world.feed_router(CacheCleared())
    stage.crash(stage.source)
    stage.run_for(1_000_000)
    assert stage.source.node.snapshot().cache_generation == 1


def test_before_anything_was_measured_nothing_is_returned():
    stage = Stage(uneven_plan(transfer=QUICK, cache=BOTH_WAYS))
    stage.submit("first")
    stage.finish_right()
    (priced,) = [t.data for _, _, t in stage.traced("return_priced")]
    assert priced == {"saved_us": 0, "cost_us": 0, "pays": 0}


def test_a_hot_prefix_gets_another_owner_and_no_more_than_that():
    hot = CacheConfig(replicate_hits=3, max_replicas=2)
    stage = stage_of("prefill", "prefill", "prefill", "decode", cache=hot)
    for number in range(20):
        stage.submit(f"r{number}", [*range(16), 300 + number], max_tokens=2)
        stage.serve()
        stage.until(lambda: not stage.world.router.copies)
    names = stage.world.router.context.names(stage.requests["r0"], range(16))
    depths = stage.world.router.context.holdings.match(names).depths
    assert sorted(w for w, depth in depths.items() if depth == 4) == [
        "decode-3",
        "prefill-0",
        "prefill-1",
    ]
    assert stage.world.router.counters["copies_replicate"] == 1
    stage.finish_right()


def test_a_cold_prefix_is_not_replicated():
    hot = CacheConfig(replicate_hits=3)
    stage = stage_of("prefill", "prefill", "decode", cache=hot)
    for number in range(8):
        stage.submit(f"r{number}", 9, first=20 * number, max_tokens=2)
        stage.serve()
    assert not stage.world.router.counters["copies_replicate"]


def test_a_routed_prefix_is_fetched_where_the_policy_says_so():
    """Conductor: the holder is busy, a copy is cheap, so the idle worker gets the prefix first."""
    router = RouterConfig(policy="conductor")
    stage = stage_of("prefill", "prefill", "decode", router=router)
    long = list(range(100))
    stage.submit("first", long, max_tokens=2)
    stage.serve()
    stage.run_for(500_000)
    stage.submit("busy", 120, first=300, max_tokens=2)
    stage.submit("busy-2", 120, first=500, max_tokens=2)
    stage.submit("second", long, max_tokens=2)
    stage.submit("third", [*long[:80], 7], max_tokens=2)
    stage.finish_right()
    moved = stage.world.router.counters["copies_fetch"]
    assert moved and stage.world.router.counters["copies_inserted"] == moved
    assert stage.end("third").usage.cached_tokens == 80
    fetched = {t.request_id: t.data["to"] for _, _, t in stage.traced("fetching")}
    routed = {t.request_id: t.data["prefill"] for _, _, t in stage.traced("routed")}
    assert fetched and all(routed[name] == to for name, to in fetched.items()), "never for nothing"


def test_a_client_may_leave_while_its_prefix_is_fetched():
    stage = stage_of("prefill", "prefill", "decode", router=RouterConfig(policy="conductor"))
    long = list(range(100))
    stage.submit("first", long, max_tokens=2)
    stage.serve()
    stage.run_for(500_000)
    for number in range(2):
        stage.submit(f"busy-{number}", 120, first=300 + 200 * number, max_tokens=2)
    stage.submit("second", long, max_tokens=2)
    stage.submit("third", [*long[:80], 7], max_tokens=2)
    records = stage.world.router.records

    def fetching() -> list[str]:
        return [name for name, one in records.items() if one.state is RequestState.FETCHING]

    stage.until(fetching)
    leaver = fetching()[0]
    stage.world.feed_router(Cancelled(request_id=leaver, reason="disconnect"))
    assert stage.end(leaver).finish_reason == "cancelled"
    stage.finish()


def test_rows_of_before_a_clear_are_not_named_after_it():
    """The word reaches the destination first: its grant tells the source."""
    stage = stage_of()
    stage.submit("first", 18, max_tokens=2)
    stage.finish_right()
    stage.lose = lambda number, sender, receiver, message: (
        isinstance(message, ClearCache) and receiver.startswith("prefill")
    )
    stage.world.feed_router(CacheCleared())
    stage.until(lambda: stage.destination.node.context.cache_generation == 1)
    stage.submit("second", 18, max_tokens=2)
    stage.finish_right()
    assert stage.end("second").usage.cached_tokens == 0
    assert stage.source.node.context.cache_generation == 1


def test_prompts_are_named_in_the_blocks_of_those_who_prefill():
    """Whoever joins first: with two block sizes the claims of prefill workers are found."""
    for seed in range(4):
        plan = uneven_plan(seed=seed, transfer=QUICK, num_blocks=64)
        stage = Stage(replace(plan, decode_block_size=8))
        stage.submit("first", 18, max_tokens=2)
        stage.finish_right()
        context = stage.world.router.context
        names = context.names(stage.requests["first"], range(18))
        assert context.holdings.match(names).depths == {"prefill-0": 4}


def test_the_last_token_of_an_answer_has_no_row():
    """A text that ends with its block is returned up to the block before."""
    stage = stage_of(cache=BOTH_WAYS)
    stage.submit("turn", 10, max_tokens=6, ignore_eos=True)
    stage.serve()
    stage.until(lambda: not stage.world.router.copies)
    (started,) = [
        t.data for _, _, t in stage.traced("copy_started") if t.data["motive"] == Motive.RETURN
    ]
    assert started["num_tokens"] == 12
    assert stage.world.router.counters["copies_inserted"] == 1
    stage.finish_right()
