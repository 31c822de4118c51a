"""What defines each batch policy, seen on the production worker in the simulated host.

Every run is watched by all checkers, and every output equals the reference.
"""

from collections import Counter, defaultdict

import pytest

from baton.core.effects import RunBatch
from baton.core.work import Batch
from baton.policy.batching.policies import POLICIES
from baton.sim.observer import Observer
from tests.stage import Stage


class _Batches(Observer):
    """Keeps every batch that a worker starts, and who was in its engine queue at that moment."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Batch]] = []
        self.present: list[set[str]] = []
        self.running: list[set[str]] = []

    def handled(self, worker, event, effects):
        for effect in effects:
            if isinstance(effect, RunBatch):
                queue = worker.node.queue
                self.batches.append((worker.world.timeline.now_us, effect.batch))
                running = {s.request.request_id for s in queue.running.values()}
                waiting = {s.request.request_id for s in queue.waiting.values()}
                self.running.append(running)
                self.present.append(running | waiting)


def rows_of(batch: Batch) -> tuple[dict[str, int], dict[str, int]]:
    """Prompt rows and decode rows by request."""
    prompts: dict[str, int] = {}
    decodes: dict[str, int] = {}
    for item in batch.items:
        chosen = prompts if item.start < item.num_prompt_tokens else decodes
        chosen[item.request_id] = len(item.token_ids)
    return prompts, decodes


def finished_at(stage: Stage, request_id: str) -> int:
    """When the worker that decoded it let it go."""
    return stage.traced("finished", request_id)[0][0]


def serve(policy: str, **options) -> tuple[_Batches, Stage]:
    """Streams that are decoding, a burst of long prompts and then short ones, on one worker."""
    seen = _Batches()
    stage = Stage(
        observers=[seen],
        **{"mixed": 1, "policy": policy, "blocks": 512, "growth": 64, "lease": 10_000, **options},
    )
    for number in range(3):
        stage.submit(f"live{number}", 6, first=10 * number, max_tokens=12 + 6 * number)
    stage.until(lambda: stage.traced("admitted", "live2"))
    for number in range(3):
        stage.submit(f"long{number}", 150, first=100 + 200 * number, max_tokens=5)
        stage.submit(f"short{number}", 5, first=800 + 10 * number, max_tokens=3 + 4 * number)
    stage.finish_right()
    return seen, stage


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("blocks", [512, 60])
def test_every_policy_serves_the_reference_text_in_a_wide_and_in_a_tight_pool(policy, blocks):
    growth = 64 if blocks == 512 else 0
    seen, stage = serve(policy, blocks=blocks, growth=growth)
    assert len({i.request_id for _, b in seen.batches for i in b.items}) == 9
    assert stage.world.marks()["finished"] == 9


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_serves_split_workers_too(policy):
    _, stage = serve(policy, mixed=0, prefill=1, decode=1)
    assert stage.world.marks()["finished"] == 9 and stage.world.marks()["handoffs"] == 9


def test_orca_never_gives_an_earlier_request_fewer_iterations():
    seen, _ = serve("orca", seqs=4)
    iterations: Counter[str] = Counter()
    order: list[str] = []
    for (_, batch), present in zip(seen.batches, seen.present, strict=True):
        for item in batch.items:
            if item.request_id not in iterations:
                order.append(item.request_id)
            iterations[item.request_id] += 1
        here = [request_id for request_id in order if request_id in present]
        counts = [iterations[request_id] for request_id in here]
        assert counts == sorted(counts, reverse=True), f"{here}: {counts}"
    assert max(len(batch.items) for _, batch in seen.batches) == 4
    assert order.index("long0") < order.index("short0") < order.index("long1")


def test_orca_frees_a_request_at_its_own_last_iteration():
    _, stage = serve("orca")
    assert finished_at(stage, "live0") < finished_at(stage, "live1")
    assert finished_at(stage, "live1") < finished_at(stage, "live2")


def test_static_release_time_is_the_maximum_over_the_batch():
    seen, stage = serve("static", batch=600)
    batches: dict[str, int] = {}
    number, members = -1, set()
    for _, batch in seen.batches:
        ids = {item.request_id for item in batch.items}
        if not ids <= members:
            assert not ids & members, "nobody joins a batch that has started"
            number, members = number + 1, ids
        for request_id in ids:
            batches[request_id] = number
    released = defaultdict(set)
    last_row = defaultdict(int)
    for at_us, batch in seen.batches:
        for item in batch.items:
            last_row[item.request_id] = at_us
    for request_id, number in batches.items():
        released[number].add(finished_at(stage, request_id))
    assert all(len(times) == 1 for times in released.values()), "released together"
    first = [r for r, n in batches.items() if n == batches["short2"]]
    assert len({last_row[r] for r in first}) > 1, "though they end at different iterations"


@pytest.mark.parametrize("budget", [16, 32])
def test_sarathi_serve_lets_no_decode_wait_for_a_whole_prompt(budget):
    """Every running decode is in every step, and a step is never longer than the budget."""
    seen, _ = serve("sarathi_serve", batch=budget)
    mixed = 0
    for (_, batch), streams in zip(seen.batches, seen.running, strict=True):
        prompts, decodes = rows_of(batch)
        assert batch.num_rows <= budget
        assert streams <= decodes.keys()
        mixed += bool(prompts and decodes)
    assert mixed >= 150 * 3 // budget


def test_sarathi_anchors_each_step_with_exactly_one_chunk():
    seen, _ = serve("sarathi", batch=32)
    full = 0
    for _, batch in seen.batches:
        prompts, decodes = rows_of(batch)
        assert len(prompts) <= 1
        full += bool(prompts and decodes and batch.num_rows == 32)
    assert full >= 10, "long prompts fill the tile beside the decodes"


def test_prefill_first_makes_streams_wait_for_whole_prompts_and_age_ends_it():
    seen, _ = serve("prefill_first", batch=200)
    alone = [rows_of(batch) for _, batch in seen.batches]
    assert all(not (prompts and decodes) for prompts, decodes in alone)
    assert any(prompts.get("long0") == 150 for prompts, _ in alone), "uncut"
    seen, _ = serve("prefill_first", batch=200, passed_over=1)
    assert any(p and d for p, d in (rows_of(batch) for _, batch in seen.batches))


def test_whole_hybrid_runs_uncut_prompts_and_streams_in_one_step():
    seen, _ = serve("whole_hybrid", batch=200)
    shared = 0
    for (_, batch), streams in zip(seen.batches, seen.running, strict=True):
        prompts, decodes = rows_of(batch)
        assert batch.num_rows <= 200
        if prompts and batch.num_rows < 200:
            assert streams <= decodes.keys()
            shared += bool(decodes)
    assert shared >= 2
    assert any(rows_of(batch)[0].get("long0") == 150 for _, batch in seen.batches), "uncut"


def test_decode_first_computes_no_prompt_while_anybody_decodes():
    seen, _ = serve("decode_first")
    for (_, batch), _ in zip(seen.batches, seen.present, strict=True):
        prompts, decodes = rows_of(batch)
        assert not (prompts and decodes)
    burst = next(n for n, (_, b) in enumerate(seen.batches) if "long0" in rows_of(b)[0])
    before = [rows_of(b)[1] for _, b in seen.batches[:burst]]
    assert sum("live2" in decodes for decodes in before) == 12 + 6 * 2 - 1


def test_phase_pure_steps_hold_one_phase_and_the_shortest_prompt_starts_first():
    seen, _ = serve("phase_pure", mixed=0, prefill=1, decode=1, order="sjf", batch=64)
    starts: list[str] = []
    for _, batch in seen.batches:
        prompts, decodes = rows_of(batch)
        assert not (prompts and decodes)
        starts += [request_id for request_id in prompts if request_id not in starts]
    assert starts.index("short2") < starts.index("long1")


@pytest.mark.parametrize(("cap", "worst"), [(0, 3), (1, 1)])
def test_a_sequence_is_preempted_no_more_often_than_the_cap_while_another_can_be(cap, worst):
    """r4 yields first, comes back when r0 ends, and would have to yield again."""
    stage = Stage(mixed=1, blocks=64, growth=0, preemptions=cap, lease=10_000)
    for number in range(5):
        length = 45 if number == 0 else 80
        stage.submit(f"r{number}", 12, first=20 * number, max_tokens=length)
    stage.finish_right()
    counts = Counter(trace.request_id for _, _, trace in stage.traces if trace.name == "preempted")
    assert counts["r4"] == worst and sum(counts.values()) >= 2
