"""Routes at the router: caches followed, targets kept, refusals honest, tenants in turn."""

import pytest
from msgspec.structs import replace

from baton.config import CacheConfig, RouterConfig
from baton.core.cache import Milestone
from baton.core.delivery import Failed, Finished
from baton.core.ids import Direction
from baton.core.messages import Reserve
from baton.core.request import SLO, SamplingParams
from baton.core.snapshot import Rates
from baton.core.work import Batch, BatchResult, WorkItem
from baton.nodes.fleet import WorkerView
from baton.nodes.rates import RateMeter
from baton.policy.routing.policies import ROUTE_POLICIES
from tests.nodes.joining import info
from tests.stage import Stage, uneven_plan


def stage_of(*roles: str, policy: str, max_copies: int = 16, **fields) -> Stage:
    """A stage whose workers keep and announce what they have computed."""
    cache = CacheConfig(milestone=Milestone.PROMPT, max_copies=max_copies)
    return Stage(uneven_plan(*roles, router=RouterConfig(policy=policy, **fields), cache=cache))


def routed(stage: Stage, request_id: str) -> dict:
    return stage.traced("routed", request_id)[-1][2].data


def warm(stage: Stage) -> None:
    """Every worker has measured its rates; then one prefix of 40 rows is announced."""
    for number in range(8):
        stage.submit(f"rates{number}", 24, first=1000 * (number + 1))
    stage.serve()
    stage.run_for(1_500_000)
    stage.submit("warm", 40)
    stage.serve()
    stage.run_for(1_500_000)
    for view in stage.world.router.fleet:
        assert view.rates.prefill_us_per_token or view.rates.decode_step_us


@pytest.mark.parametrize("policy", sorted(ROUTE_POLICIES))
def test_every_policy_serves_the_whole_true_text_and_says_why(policy):
    stage = stage_of("prefill", "prefill", "decode", "decode", policy=policy)
    warm(stage)
    for number in range(4):
        stage.submit(f"r{number}", 40 + number)
    stage.finish_right()
    data = routed(stage, "r3")
    assert data["policy"] == policy and data["reason"]
    assert data["predicted_ttft_us"] > 0 and data["predicted_tpot_us"] > 0
    reserve = stage.kinds(Reserve)[-1]
    pulls = policy == "distserve"
    assert reserve.direction is (Direction.PULL if pulls else stage.world.plan.transfer.direction)


@pytest.mark.parametrize("policy", ["local_cache_aware", "memserve", "conductor", "pair"])
def test_a_cached_prefix_is_followed_and_priced_on_both_sides(policy):
    """Nothing can be copied, so the prompt goes to where it is held."""
    stage = stage_of("prefill", "prefill", "decode", "decode", policy=policy, max_copies=0)
    warm(stage)
    first = routed(stage, "warm")
    stage.submit("again", 40)
    stage.finish_right()
    data = routed(stage, "again")
    assert data["prefill"] == first["prefill"]
    assert data["prefill_reuse"] == 36, "nine of ten blocks: the last row is computed"
    assert "prefill_reuse" not in first
    if policy == "pair":
        assert data["decode"] == first["decode"] and data["decode_reuse"] == 40
    other = "prefill-1" if data["prefill"] == "prefill-0" else "prefill-0"
    assert f"{other}>" in data["alternatives"]


def test_the_account_of_a_source_is_what_it_still_has_to_compute():
    stage = stage_of("prefill", "decode", policy="local_cache_aware")
    warm(stage)
    view = stage.world.router.fleet.get("prefill-0")
    stage.submit("again", 43)
    stage.until(lambda: view.prefill_tokens.total)
    assert view.pending_tokens == 3 and view.load().pending_tokens == 3
    pairs = 41 + 42 + 43
    priced_us = 3 * view.rates.prefill_us_per_token + pairs * view.rates.prefill_us_per_pair
    assert view.load().pending_us == pytest.approx(priced_us) and priced_us > 0
    stage.finish_right()
    assert view.pending_tokens == view.prefill_pairs.total == 0 == view.load().pending_us


def test_a_load_is_kept_until_something_of_it_changes():
    view = WorkerView(info("d"), 0)
    first = view.load()
    assert view.load() is first
    view.decode_blocks["r"] = 3
    second = view.load()
    assert (second.active_requests, second.headroom_blocks) == (1, first.headroom_blocks - 3)
    view.decode_blocks["r"] = 2
    assert view.load().headroom_blocks == first.headroom_blocks - 2
    view.full = True
    assert not view.load().accepting
    view.decode_blocks.pop("r", None)
    view.full = False
    assert view.load() == first
    view.end_prefill("unknown")
    view.prefill_tokens["r"] = 7
    view.prefill_pairs["r"] = 28
    view.end_prefill("r")
    assert view.load() == first


# -- targets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slo", "code"),
    [(SLO(ttft_us=1), "ttft_slo"), (SLO(tpot_us=1), "tpot_slo")],
)
@pytest.mark.parametrize("policy", ["conductor", "pair"])
def test_a_target_that_no_route_meets_is_refused_before_any_compute(policy, slo, code):
    stage = stage_of(policy=policy)
    warm(stage)
    stage.sent.clear()
    stage.submit("r", 41, slo=slo)
    stage.finish()
    end = stage.end()
    assert isinstance(end, Failed) and (end.code, end.status) == (code, 429)
    assert end.retry_after_s is not None and end.retry_after_s >= 1
    assert stage.sent == [] and stage.world.router.counters[f"rejected_{code}"] == 1
    assert stage.traced("rejected", "r")[0][2].data["code"] == code


@pytest.mark.parametrize("policy", ["conductor", "pair"])
def test_a_request_may_ask_for_more_time_than_the_deployment_grants(policy):
    stage = stage_of(policy=policy)
    warm(stage)
    strict = replace(stage.world.router.context.config, tpot_slo_ms=1, ttft_slo_ms=1)
    stage.world.router.context.config = strict
    stage.submit("own", 100, slo=SLO(ttft_us=10**9, tpot_us=10**9))
    stage.submit("none", 100)
    stage.finish()
    assert isinstance(stage.end("own"), Finished)
    assert getattr(stage.end("none"), "status", 0) == 429


def test_time_that_a_request_has_waited_counts_against_its_target():
    """It fits when it arrives. Its turn comes after the target is over."""
    stage = stage_of(policy="pair", fairness="fcfs")
    warm(stage)
    view = stage.world.router.fleet.get("decode-1")
    view.decode_blocks["hog"] = view.info.num_blocks
    stage.submit("r", 41, slo=SLO(ttft_us=1_000_000))
    stage.run_for(1_100_000)
    assert stage.world.end_of("r") is None
    view.decode_blocks.pop("hog", None)
    stage.run_for(300_000)
    assert getattr(stage.end(), "code", "") == "ttft_slo"


def test_a_stream_that_has_begun_is_not_refused_when_its_worker_dies():
    stage = stage_of("prefill", "decode", "decode", policy="pair")
    warm(stage)
    stage.submit("r", 41, max_tokens=30, slo=SLO(ttft_us=200_000_000, tpot_us=10**9))
    stage.until(lambda: len(stage.tokens()) > 2)
    record = stage.world.router.records["r"]
    record.request = replace(record.request, slo=SLO(ttft_us=1, tpot_us=1))
    stage.world.crash(record.fence.destination_id, 100, 10_000_000)
    stage.serve()
    stage.assert_right()


# -- whose turn --------------------------------------------------------------------------------


def test_a_burst_of_one_tenant_waits_behind_the_single_request_of_another():
    def order(fairness: str) -> list[str]:
        stage = stage_of(policy="shortest_queue", fairness=fairness)
        view = stage.world.router.fleet.get("decode-1")
        view.decode_blocks["hog"] = view.info.num_blocks
        for number in range(6):
            stage.submit(f"burst{number}", 20, tenant_id="greedy")
        stage.submit("single", 20, tenant_id="modest")
        view.decode_blocks.pop("hog", None)
        stage.serve()
        stage.assert_all_right()
        return [trace.request_id for _, _, trace in stage.traced("routed")]

    assert order("fcfs")[-1] == "single"
    assert order("tenants")[:2] == ["burst0", "single"]


# -- rates -------------------------------------------------------------------------------------


def step(meter: RateMeter, items: list[tuple[int, int, bool]], duration_us: int) -> None:
    batch = Batch(
        batch_id=1,
        items=tuple(
            WorkItem(
                request_id=f"r{number}",
                generation=1,
                token_ids=(1,) * rows,
                start=start,
                num_prompt_tokens=0 if decodes else 10**6,
                block_table=(),
                sample=False,
                sampling=SamplingParams(max_tokens=1),
            )
            for number, (rows, start, decodes) in enumerate(items)
        ),
    )
    meter.step(BatchResult(batch_id=1, duration_us=duration_us), batch)


def test_rows_and_pairs_are_learned_apart():
    meter = RateMeter(Rates())
    for start in range(0, 4096, 256):
        pairs = 256 * start + 256 * 257 // 2
        step(meter, [(256, start, False)], int(256 * 40 + pairs * 0.05))
    rates = meter.rates()
    assert rates.prefill_us_per_token == pytest.approx(40, rel=0.01)
    assert rates.prefill_us_per_pair == pytest.approx(0.05, rel=0.01)


def test_pairs_that_do_not_show_cost_nothing_and_no_rate_is_negative():
    alike, falling = RateMeter(Rates()), RateMeter(Rates())
    for number in range(1, 30):
        step(alike, [(64, 0, False)], 6400)
        step(falling, [(64, 64 * number, False)], 10_000 - 100 * number)
    assert alike.rates().prefill_us_per_pair == falling.rates().prefill_us_per_pair == 0
    assert alike.rates().prefill_us_per_token == pytest.approx(100)
    assert falling.rates().prefill_us_per_token > 0


def test_what_a_sequence_adds_to_a_step_is_learned_from_batches_that_differ():
    meter, same = RateMeter(Rates()), RateMeter(Rates())
    for number in range(1, 40):
        size = number % 8 + 1
        step(meter, [(1, 9, True)] * size, 2000 + 150 * size)
        step(same, [(1, 9, True)] * 4, 2600 + number % 2)
    assert meter.rates().decode_us_per_sequence == pytest.approx(150, rel=0.01)
    assert same.rates().decode_us_per_sequence == 0


# -- admission ---------------------------------------------------------------------------------


def overload(admission: str) -> Stage:
    """Ten clients at once; the decode worker runs two sequences."""
    plan = uneven_plan(router=RouterConfig(admission=admission))
    stage = Stage(replace(plan, worker=replace(plan.worker, max_num_seqs=2)))
    for number in range(10):
        stage.submit(f"r{number}", 30, first=100 * number, max_tokens=8)
    stage.finish()
    return stage


def refusals(stage: Stage) -> list[Failed]:
    ends = [stage.end(request_id) for request_id in stage.requests]
    return [end for end in ends if isinstance(end, Failed)]


def test_without_admission_everybody_waits_and_is_served():
    assert refusals(overload("none")) == []


@pytest.mark.parametrize("admission", ["early", "predicted"])
def test_an_overloaded_decode_side_refuses_and_who_is_admitted_is_served(admission):
    stage = overload(admission)
    refused = refusals(stage)
    assert 0 < len(refused) <= 8
    assert {(end.code, end.status) for end in refused} == {("decode_load", 429)}
    assert all(end.retry_after_s is not None and end.retry_after_s >= 1 for end in refused)
    for request_id in stage.requests:
        if isinstance(stage.end(request_id), Finished):
            stage.assert_right(request_id)


def test_the_predicted_form_refuses_before_the_prompts_on_their_way_have_become_decodes():
    def first(stage: Stage, name: str) -> int:
        return stage.traced(name)[0][0]

    early, predicted = overload("early"), overload("predicted")
    assert first(early, "rejected") >= first(early, "published")
    assert first(predicted, "rejected") < first(predicted, "published")
    assert len(refusals(predicted)) >= len(refusals(early))


def test_rows_computed_for_who_is_refused_after_all_are_counted_as_wasted():
    """Its first attempt ends after its prefill; by then its target cannot be met any more."""
    stage = stage_of("prefill", "prefill", "decode", policy="pair")
    warm(stage)
    stage.submit("r", 41, first=500, slo=SLO(ttft_us=400_000))
    stage.until(lambda: stage.world.router.records["r"].fence)
    record = stage.world.router.records["r"]
    stage.hit_batch(stage.world.workers[record.fence.source_id])
    stage.until(lambda: record.state == "PREFILLING")
    record.submitted_us -= 400_000
    stage.finish()
    assert getattr(stage.end(), "code", "") == "ttft_slo"
    assert stage.world.router.counters["wasted_prefill_tokens"] == 41
