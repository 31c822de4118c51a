"""The production nodes end to end, in memory: same text split as colocated, nothing held."""

import random

import pytest

from baton.config import RouterConfig, TransferConfig, WorkerConfig
from baton.core.delivery import Failed, Finished
from baton.core.ids import Direction, Mode
from baton.core.messages import AbortTransfer, Published, Seal, SourceRelease, TokenRows
from tests.nodes.cluster import Cluster, reference

PROMPTS = [list(range(1, n + 1)) for n in (1, 3, 4, 5, 7, 8, 9, 31, 32, 33, 60)]


def transfer(**changes) -> TransferConfig:
    return TransferConfig(**{"chunk_nbytes": 128, "credit_nbytes": 256, **changes})


def ready(cluster: Cluster) -> Cluster:
    cluster.run(lambda: not cluster.router.missing(cluster.now_us))
    return cluster


@pytest.mark.parametrize("schedule", ["layer", "request"])
@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("checksum", [True, False])
def test_split_equals_colocated_at_block_edges(schedule, direction, checksum):
    cluster = ready(
        Cluster(
            transfer=transfer(schedule=schedule, direction=direction, checksum=checksum), seed=3
        )
    )
    for number, prompt in enumerate(PROMPTS):
        cluster.submit(f"r{number}", prompt)
    cluster.run()
    for number, prompt in enumerate(PROMPTS):
        assert cluster.text(f"r{number}") == reference(prompt), number
        assert cluster.started(f"r{number}").mode is Mode.DISAGGREGATED
        assert cluster.end(f"r{number}").finish_reason == "length"
    cluster.settle()
    cluster.assert_nothing_held()


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_events_gives_the_same_text(seed):
    cluster = ready(Cluster(("prefill", "prefill", "decode", "decode"), seed=seed))
    rng = random.Random(seed)
    prompts = {f"r{i}": [rng.randrange(9) for _ in range(rng.randrange(1, 40))] for i in range(8)}
    for name, prompt in prompts.items():
        cluster.submit(name, prompt)
    cluster.run()
    for name, prompt in prompts.items():
        assert cluster.text(name) == reference(prompt)
    cluster.settle()
    cluster.assert_nothing_held()


def test_every_destination_hit_length_moves_only_what_is_missing():
    prompt = list(range(50, 83))
    for hit in range(9):
        cluster = ready(Cluster(seed=hit))
        if hit:
            cluster.submit("warm", [*prompt[: hit * 4], 7])
            cluster.run()
        cluster.submit("r", prompt)
        cluster.run()
        assert cluster.text("r") == reference(prompt)
        reserved = [t for t in cluster.traces if t.name == "reserved" and t.request_id == "r"]
        assert reserved[0].data["visible_tokens"] == hit * 4
        assert cluster.end("r").usage.cached_tokens == hit * 4


def test_the_end_names_usage_and_digest_once():
    cluster = ready(Cluster())
    cluster.submit("r", PROMPTS[5], verify=True, max_tokens=4)
    cluster.run()
    end = cluster.end("r")
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (8, 4)
    single = ready(Cluster(("mixed",)))
    single.submit("r", PROMPTS[5], verify=True, max_tokens=4)
    single.run()
    assert end.kv_digest and end.kv_digest == single.end("r").kv_digest
    assert single.started("r").mode is Mode.COLOCATED


@pytest.mark.parametrize("seed", range(60))
def test_cancelling_at_a_random_moment_leaves_nothing(seed):
    direction = list(Direction)[seed % 2]
    roles = ("mixed",) if seed % 5 == 0 else ("prefill", "decode")
    cluster = ready(Cluster(roles, seed=seed, transfer=transfer(direction=direction)))
    rng = random.Random(seed)
    for number in range(4):
        cluster.submit(f"r{number}", list(range(number, number + 25)), max_tokens=8)
    victims = [f"r{n}" for n in range(4) if rng.random() < 0.7]
    for victim in victims:
        for _ in range(rng.randrange(60)):
            cluster.step()
        cluster.cancel(victim)
    cluster.run()
    for number in range(4):
        name, text = f"r{number}", cluster.text(f"r{number}")
        expected = reference(list(range(number, number + 25)), max_tokens=8)
        assert text == expected[: len(text)]
        if name not in victims:
            assert text == expected
        assert isinstance(cluster.end(name), Finished)
    cluster.settle()
    cluster.assert_nothing_held()


@pytest.mark.parametrize("seed", range(60))
def test_a_worker_dying_at_a_random_moment_changes_no_text(seed):
    direction = list(Direction)[seed % 2]
    cluster = ready(
        Cluster(("prefill", "decode"), seed=seed, transfer=transfer(direction=direction))
    )
    rng = random.Random(seed)
    for number in range(4):
        cluster.submit(f"r{number}", list(range(number, number + 25)), max_tokens=8)
    for _ in range(rng.randrange(400)):
        cluster.step()
    victim = rng.choice(["prefill-0", "decode-1"])
    host = cluster.hosts[victim]
    cluster.kill(victim)
    for _ in range(rng.randrange(40)):
        cluster.step()
    cluster.restart(victim, host)
    cluster.run()
    for number in range(4):
        assert isinstance(cluster.end(f"r{number}"), Finished), cluster.end(f"r{number}")
        expected = reference(list(range(number, number + 25)), max_tokens=8)
        assert cluster.text(f"r{number}") == expected
    cluster.settle()
    cluster.assert_nothing_held()


@pytest.mark.parametrize("seed", range(40))
def test_lost_messages_delay_but_never_change_or_leak(seed):
    rng = random.Random(seed)
    cluster = ready(Cluster(seed=seed, router=RouterConfig(attempt_timeout_ms=3000)))
    cluster.drop = lambda sender, receiver, message: rng.random() < 0.05
    for number in range(4):
        cluster.submit(f"r{number}", list(range(number, number + 25)), max_tokens=8)
    cluster.run()
    cluster.drop = lambda *_: False
    for number in range(4):
        expected = reference(list(range(number, number + 25)), max_tokens=8)
        end, text = cluster.end(f"r{number}"), cluster.text(f"r{number}")
        assert text == expected[: len(text)]
        assert text == expected or isinstance(end, Failed)
    cluster.settle(60_000_000)
    cluster.assert_nothing_held()


def test_corrupt_bytes_are_never_published():
    cluster = ready(Cluster(transfer=transfer()))
    cluster.corrupt = lambda chunk_id: chunk_id == 2
    cluster.submit("r", PROMPTS[8])
    cluster.run()
    assert cluster.text("r") == reference(PROMPTS[8])
    assert cluster.started("r").mode is Mode.RECOMPUTED
    assert cluster.hosts["decode-1"].node.counters["validation_failures"] >= 1
    cluster.settle()
    cluster.assert_nothing_held()


def test_order_is_validate_publish_admit_acknowledge():
    cluster = ready(Cluster())
    cluster.submit("r", PROMPTS[8])
    cluster.run()
    names = [t.name for t in cluster.traces if t.request_id == "r"]
    order = [names.index(n) for n in ("validated", "published", "admitted", "source_released")]
    assert order == sorted(order)
    kinds = [type(m) for s, _, m in cluster.sent if s == "decode-1"]
    assert kinds.index(Published) < kinds.index(SourceRelease)
    assert kinds.index(Published) < kinds.index(TokenRows)


def test_a_lost_acknowledgement_is_answered_again():
    cluster = ready(Cluster())
    lost = []
    cluster.drop = lambda s, r, m: isinstance(m, SourceRelease) and not lost and not lost.append(m)
    cluster.submit("r", PROMPTS[6], max_tokens=40)
    cluster.run()
    cluster.settle()
    assert lost
    assert sum(isinstance(m, Seal) for _, _, m in cluster.sent) >= 2
    cluster.settle()
    cluster.assert_nothing_held()


def test_a_silent_source_expires_and_its_blocks_stay_quarantined_until_it_is_dead():
    cluster = ready(Cluster(router=RouterConfig(worker_timeout_ms=60_000)))
    cluster.submit("r", list(range(60)))
    cluster.run(lambda: any(t.name == "prefill_started" for t in cluster.traces))
    cluster.frozen = {"prefill-0"}
    pool = cluster.hosts["decode-1"].node.context.memory.pool
    cluster.run(lambda: pool.num_quarantined > 0)
    assert any(isinstance(m, AbortTransfer) for _, _, m in cluster.sent)
    for _ in range(20):
        cluster.advance()
    assert pool.num_quarantined == 15, "a frozen peer may still write"
    host = cluster.hosts["prefill-0"]
    cluster.frozen = set()
    cluster.kill("prefill-0")
    cluster.restart("prefill-0", host)
    cluster.run()
    assert cluster.text("r") == reference(list(range(60)))
    cluster.settle()
    cluster.assert_nothing_held()


def test_memory_shortage_preempts_and_still_gives_the_same_text():
    worker = WorkerConfig(block_size=4, max_batch_tokens=16, growth_tokens=4)
    cluster = ready(Cluster(num_blocks=20, worker=worker))
    for number in range(4):
        cluster.submit(f"r{number}", [number] * 13, max_tokens=30)
    cluster.run()
    for number in range(4):
        assert cluster.text(f"r{number}") == reference([number] * 13, max_tokens=30)
    assert cluster.hosts["decode-1"].node.counters["preemptions"] > 0
    cluster.settle()
    cluster.assert_nothing_held()


def test_tenants_and_salts_never_share_a_prefix():
    cluster = ready(Cluster())
    prompt = list(range(20))
    for name, extra in (
        ("a", {"tenant_id": "x"}),
        ("b", {"tenant_id": "y"}),
        ("c", {"tenant_id": "x", "cache_salt": "s"}),
        ("d", {"tenant_id": "x"}),
    ):
        cluster.submit(name, prompt, **extra)
        cluster.run()
    cached = {name: cluster.end(name).usage.cached_tokens for name in "abcd"}
    assert cached == {"a": 0, "b": 0, "c": 0, "d": 16}


def test_a_prompt_beyond_the_pool_is_refused_at_once():
    cluster = ready(Cluster(num_blocks=8))
    cluster.submit("r", list(range(40)))
    cluster.run(limit_us=10_000_000)
    end = cluster.end("r")
    assert isinstance(end, Failed)
    cluster.settle()
    cluster.assert_nothing_held()


def test_overload_is_refused_with_an_honest_retry_after():
    cluster = ready(Cluster(router=RouterConfig(max_pending_tokens=100)))
    for number in range(10):
        cluster.submit(f"r{number}", list(range(30)))
    refused = [n for n in range(10) if isinstance(cluster.deliveries.get(f"r{n}", [0])[-1], Failed)]
    assert refused
    end = cluster.end(f"r{refused[0]}")
    assert end.status == 429
    assert end.retry_after_s >= 1
    cluster.run()
    cluster.settle()
    cluster.assert_nothing_held()
