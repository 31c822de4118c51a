"""The production nodes end to end, in memory: same text split as colocated, nothing held."""

from random import Random

import pytest

from baton.config import RouterConfig
from baton.core.delivery import Failed, Finished
from baton.core.ids import Direction, Mode
from baton.core.messages import AbortTransfer, Published, Seal, SourceRelease, TokenRows
from tests.stage import Stage, uneven_plan

PROMPTS = [list(range(1, n + 1)) for n in (1, 3, 4, 5, 7, 8, 9, 31, 32, 33, 60)]


def submit_four(stage: Stage) -> list[str]:
    for number in range(4):
        stage.submit(f"r{number}", 25, first=number, max_tokens=8)
    return list(stage.requests)


@pytest.mark.parametrize("schedule", ["layer", "request"])
@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("checksum", [True, False])
def test_split_equals_colocated_at_block_edges(schedule, direction, checksum):
    options = {"schedule": schedule, "direction": direction, "checksum": checksum}
    stage = Stage(uneven_plan(transfer=options, seed=3))
    for number, prompt in enumerate(PROMPTS):
        stage.submit(f"r{number}", prompt, max_tokens=6, ignore_eos=True)
    stage.serve()
    stage.assert_all_right()
    for name in stage.requests:
        assert stage.started(name).mode is Mode.DISAGGREGATED
        assert stage.end(name).finish_reason == "length"
    stage.settle()


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_events_gives_the_same_text(seed):
    stage = Stage(uneven_plan("prefill", "prefill", "decode", "decode", seed=seed))
    rng = Random(seed)
    for number in range(8):
        prompt = [rng.randrange(9) for _ in range(rng.randrange(1, 40))]
        stage.submit(f"r{number}", prompt, max_tokens=6)
    stage.serve()
    stage.assert_all_right()
    stage.settle()


def test_every_destination_hit_length_moves_only_what_is_missing():
    prompt = list(range(50, 83))
    for hit in range(9):
        stage = Stage(uneven_plan(seed=hit))
        if hit:
            stage.submit("warm", [*prompt[: hit * 4], 7])
            stage.serve()
        stage.submit("r", prompt)
        stage.serve()
        stage.assert_right()
        ((_, _, reserved),) = stage.traced("reserved", "r")
        assert reserved.data["visible_tokens"] == hit * 4
        assert stage.end().usage.cached_tokens == hit * 4


def test_the_end_names_usage_and_digest_once():
    split, single = Stage(uneven_plan()), Stage(uneven_plan("mixed"))
    for stage in (split, single):
        stage.submit("r", PROMPTS[5], verify=True, max_tokens=4)
        stage.serve()
    end = split.end()
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (8, 4)
    assert end.kv_digest and end.kv_digest == single.end().kv_digest
    assert single.started().mode is Mode.COLOCATED


@pytest.mark.parametrize("seed", range(60))
def test_cancelling_at_a_random_moment_leaves_nothing(seed):
    roles = ("mixed",) if seed % 5 == 0 else ("prefill", "decode")
    direction = list(Direction)[seed % 2]
    stage = Stage(uneven_plan(*roles, seed=seed, transfer={"direction": direction}))
    rng = Random(seed)
    victims = [name for name in submit_four(stage) if rng.random() < 0.7]
    for victim in victims:
        stage.steps(rng.randrange(60))
        stage.world.cancel(victim, "disconnect")
    stage.serve()
    for name in stage.requests:
        text, expected = stage.tokens(name), stage.truth(name)
        assert text == expected[: len(text)]
        if name not in victims:
            assert text == expected
        assert isinstance(stage.end(name), Finished)
    stage.settle()


@pytest.mark.parametrize("seed", range(60))
def test_a_worker_dying_at_a_random_moment_changes_no_text(seed):
    direction = list(Direction)[seed % 2]
    stage = Stage(uneven_plan(seed=seed, transfer={"direction": direction}))
    rng = Random(seed)
    submit_four(stage)
    stage.steps(rng.randrange(400))
    victim = rng.choice(["prefill-0", "decode-1"])
    stage.world.crash(victim, noticed_after_us=0, down_us=rng.randrange(20_000))
    stage.serve()
    stage.assert_all_right()
    stage.settle()


@pytest.mark.parametrize("seed", range(40))
def test_lost_messages_delay_but_never_change_or_leak(seed):
    rng = Random(seed)
    stage = Stage(uneven_plan(seed=seed, router=RouterConfig(attempt_timeout_ms=3000)))
    stage.lose = lambda *_: rng.random() < 0.05
    submit_four(stage)
    stage.serve()
    for name in stage.requests:
        text, expected = stage.tokens(name), stage.truth(name)
        assert text == expected[: len(text)]
        assert text == expected or isinstance(stage.end(name), Failed)
    stage.settle(60_000_000)


def test_order_is_validate_publish_admit_acknowledge():
    stage = Stage(uneven_plan())
    stage.submit("r", PROMPTS[8])
    stage.serve()
    names = [trace.name for _, _, trace in stage.traces if trace.request_id == "r"]
    order = [names.index(n) for n in ("validated", "published", "admitted", "source_released")]
    assert order == sorted(order)
    kinds = [type(message) for sender, _, message in stage.sent if sender == "decode-1"]
    assert kinds.index(Published) < kinds.index(SourceRelease)
    assert kinds.index(Published) < kinds.index(TokenRows)


def test_a_lost_acknowledgement_is_answered_again():
    stage = Stage(uneven_plan())
    lost = []
    stage.lose = lambda n, s, r, m: isinstance(m, SourceRelease) and not lost and not lost.append(m)
    stage.submit("r", PROMPTS[6], max_tokens=40)
    stage.serve()
    stage.settle()
    assert lost
    assert len(stage.kinds(Seal)) >= 2


def test_a_silent_source_expires_and_its_blocks_stay_quarantined_until_it_is_dead():
    stage = Stage(uneven_plan(router=RouterConfig(worker_timeout_ms=60_000)))
    stage.submit("r", 60)
    stage.until(lambda: stage.traced("prefill_started"))
    stage.source.stall(100_000_000)
    pool = stage.destination.node.context.memory.pool
    stage.until(lambda: pool.num_quarantined > 0)
    assert stage.kinds(AbortTransfer)
    stage.run_for(20_000_000)
    assert pool.num_quarantined == 15, "a frozen peer may still write"
    stage.crash(stage.source)
    stage.serve()
    stage.assert_right()
    stage.settle()


def test_a_prompt_beyond_the_pool_is_refused_at_once():
    stage = Stage(uneven_plan(num_blocks=8))
    stage.submit("r", 40)
    stage.serve()
    assert stage.now_us < 10_000_000
    assert isinstance(stage.end(), Failed)
    stage.settle()


def test_overload_is_refused_with_an_honest_retry_after():
    stage = Stage(uneven_plan(router=RouterConfig(max_pending_tokens=100)))
    for number in range(10):
        stage.submit(f"r{number}", 30)
    refused = [name for name in stage.requests if stage.world.end_of(name)]
    assert refused
    end = stage.end(refused[0])
    assert isinstance(end, Failed)
    assert end.status == 429
    assert end.retry_after_s >= 1
    stage.serve()
    stage.settle()
