"""Hits are blocks that prompts found, each prompt once: whatever else looks for names."""

import pytest

from baton.core.events import Tick
from baton.nodes.history_copy import Motive
from tests.nodes.test_copies import start
from tests.nodes.test_histories import BOTH_WAYS, stage_of, talk
from tests.nodes.test_tier_side import MODES, SMALL, ask_again, fill
from tests.stage import Stage

SIZE = 4


def counted(stage: Stage, name: str) -> int:
    """Over the present lives of all workers; no test here ends one."""
    return sum(w.node.snapshot().counters.get(name, 0) for w in stage.world.workers.values())


def num_cached(stage: Stage) -> int:
    return sum(stage.end(name).usage.cached_tokens for name in stage.requests)


def fetch(stage: Stage, request_id: str, prompt: list[int], num_blocks: int) -> None:
    """The request waits until its prefix has come from the decode worker to prefill-1."""
    router = stage.world.router
    original, router._attempts.route_waiting = router._attempts.route_waiting, lambda: None
    stage.submit(request_id, prompt)
    stage.until(lambda: request_id in router.records)
    router.context.waiting.remove(request_id)
    record = router.records[request_id]
    assert router.histories.fetch(record, "decode-2", "prefill-1", num_blocks)
    router._attempts.route_waiting = original
    stage.world.feed_router(Tick())


def test_hits_are_the_cached_tokens_of_all_answers_beside_copies_of_every_motive():
    stage = stage_of("prefill", "prefill", "decode", cache=BOTH_WAYS)
    talk(stage, 3)
    first, third = list(range(200, 218)), list(range(300, 318))
    for name, prompt in (("first", first), ("third", third)):
        stage.submit(name, prompt, max_tokens=2)
        stage.serve()
    stage.until(lambda: not stage.world.router.copies)
    copy = start(stage, "decode-2", "prefill-1", tuple(first[:16]))
    assert copy is not None
    fetch(stage, "fetched", third, 4)
    for number in range(6):
        stage.submit(f"beside-{number}", [*first, 400 + number], max_tokens=2)
    stage.finish_right()
    counters = stage.world.router.counters
    assert all(counters[f"copies_{motive}"] for motive in Motive), counters
    assert counters["copies_inserted"] >= 4
    assert stage.end("fetched").usage.cached_tokens == 16
    assert counted(stage, "prefix_blocks_found") * SIZE == num_cached(stage) > 100
    # A whole prompt may not be history: its last row is always computed.
    whole = [(request.num_prompt_tokens - 1) // SIZE for request in stage.requests.values()]
    assert counted(stage, "prefix_blocks_asked") == sum(whole)


def test_a_prompt_that_waits_for_blocks_counts_once():
    stage = Stage(blocks=16, block_size=SIZE, growth=1, prefill=1, decode=2)
    stage.submit("r", 30)
    stage.finish_right()
    memory, matches = stage.source.node.context.memory, []
    original = memory.match
    memory.match = lambda *given: matches.append(given) or original(*given)
    for number in range(6):
        stage.submit(f"again-{number}", [*range(14), *range(1000 * number, 1000 * number + 28)])
    stage.finish_right()
    assert len(matches) > 6, "nobody had to try again"
    counters = stage.source.node.snapshot().counters
    assert counters["prefix_blocks_asked"] == 7 + 6 * ((42 - 1) // SIZE)
    assert counters["prefix_blocks_found"] * SIZE == num_cached(stage) > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tiers", [{"host": 64}, {"host": 8, "disk": 64}])
def test_what_came_up_is_a_hit_of_its_tier_and_of_memory(mode, tiers):
    stage = Stage(**SMALL, **mode, **tiers)
    stage.submit("r", 30)
    stage.finish_right()
    fill(stage)
    assert ask_again(stage) == 28
    assert counted(stage, "prefix_blocks_found") * SIZE == num_cached(stage)
    below = sum(table.num_hits for table in stage.source.node.context.memory.lower)
    assert below == 7


def test_a_copy_that_had_to_come_up_is_no_hit():
    stage = stage_of("prefill", "prefill", "decode", num_host_blocks=64)
    stage.submit("first", 18, max_tokens=2)
    stage.finish_right()
    source = stage.worker("prefill-0").node.context.memory
    before = counted(stage, "prefix_blocks_found")
    request = stage.requests["first"]
    for name in reversed(source.hashes(request, request.prompt_token_ids)):
        block = source.pool.lookup(name)
        assert block is not None
        source.pool.unname(block)
    assert start(stage, "prefill-0", "prefill-1", request.prompt_token_ids[:16]) is not None
    stage.finish_right()
    assert stage.world.router.counters["copies_inserted"] == 1
    assert stage.traced("tier_load")
    assert counted(stage, "prefix_blocks_found") == before
    assert source.lower[0].num_hits == 0
