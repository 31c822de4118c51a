"""Moved is not visible, visible is not published, and what failed is nowhere a hit."""

import pytest

from baton.core.messages import Published, Reserved
from tests.stage import MODES, Stage, num_chunks

DIRECTIONS = ("push", "pull")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("schedule", ["layer", "request"])
def test_transport_completion_taken_as_visibility(direction, schedule):
    """Every copy reports success, one of them did not arrive as it left: nothing is published."""
    options = {"direction": direction, "schedule": schedule}
    for number in range(1, num_chunks(**options) + 1):
        stage = Stage(**options)
        stage.hit_chunk(number, "corrupt")
        stage.submit()
        stage.until(lambda stage=stage: stage.traced("attempt_failed"))
        assert not stage.kinds(Published)
        assert not stage.world.deliveries["r"], "no token of a state that was never whole"
        stage.finish_right()
        (failed,) = stage.traced("attempt_failed")
        assert failed[2].data["reason"] == "checksum_mismatch"


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("slow", ["read back", "notification"])
def test_publication_before_the_last_byte_is_seen(direction, slow):
    """However slow the way from arrival to visibility: first everything is seen, then published."""
    stage = Stage(direction=direction, notify_us=3_000 if slow == "notification" else 20)
    if slow == "read back":
        hardware = type(stage.destination.hardware)(control_jitter_us=0, digest_us=2_000)
        stage.destination.hardware = hardware
    stage.submit()
    stage.finish_right()
    ((seen_us, *_),) = stage.traced("all_visible")
    ((published_us, *_),) = [t for t in stage.traced("published") if t[1] != "router"]
    assert published_us >= seen_us


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", ["corrupt", "fail"])
def test_failed_transfer_counted_as_a_hit(direction, kind):
    """After a failure the same prompt finds nothing of it at the destination."""
    for number in range(1, num_chunks(direction=direction) + 1):
        stage = Stage(direction=direction, attempts=1)
        stage.hit_chunk(number, kind)
        stage.submit(prompt=12)
        stage.finish()
        assert stage.destination.node.context.memory.pool.num_cached == 0
        stage.submit("again", prompt=12)
        stage.finish()
        stage.assert_right("again")
        assert stage.traced("reserved", "again")[0][2].data["visible_tokens"] == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sharer_of_blocks_that_fail(direction):
    """A second request with the same prompt never reads what the first has not published."""
    for number in range(1, num_chunks(direction=direction) + 1):
        for delay_us in range(0, 1_400, 200):
            stage = Stage(direction=direction)
            stage.hit_chunk(number, "corrupt")
            stage.submit("owner", prompt=12)
            stage.run_for(delay_us)
            stage.submit("sharer", prompt=12)
            stage.finish_right()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_store_that_reports_a_hit_whose_data_is_gone(direction):
    """History may be evicted at any time: what was matched is pinned, and the rest is computed."""
    stage = Stage(direction=direction, blocks=8, growth=0)
    for number in range(9):
        stage.submit(f"r{number}", prompt=12, first=100 * (number % 3), max_tokens=2)
        if number % 2:
            stage.finish_right()
    stage.finish_right()
    assert stage.source.node.context.memory.pool.num_evicted > 0
    assert not stage.traced("attempt_failed")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_transferred_and_not_used(direction):
    """Nothing that was moved is computed again, and a repeated prompt moves only what is new."""
    stage = Stage(direction=direction)
    stage.submit("first", prompt=14)
    stage.finish_right()
    stage.submit("again", prompt=14)
    stage.finish_right()
    sizes = [len(message.grant.block_ids) for message in stage.kinds(Reserved)]
    assert sizes == [4, 1]
    counters = stage.destination.node.counters
    assert counters["handoffs"] == 2
    for waste in ("handoff_retried_bytes", "handoff_duplicate_bytes"):
        assert counters[waste] == 0
    assert not any(name.startswith("fallback") for name in stage.world.router.counters)


@pytest.mark.parametrize("mode", MODES)
def test_reused_tokens_counted_by_who_received_them(mode):
    """`cached_tokens` is what the source did not compute, and not what was moved."""
    stage = Stage(**MODES[mode])
    expected = {"first": 0, "again": 12, "longer": 12, "fresh": 0}
    prompts = {"first": (14, 0), "again": (14, 0), "longer": (30, 0), "fresh": (14, 500)}
    for request_id, (length, first) in prompts.items():
        stage.submit(request_id, prompt=length, first=first)
        stage.finish_right()
        usage = stage.end(request_id).usage
        assert (usage.prompt_tokens, usage.completion_tokens) == (length, 4)
        assert usage.cached_tokens == expected[request_id]
        assert stage.started(request_id).cached_tokens == expected[request_id]
