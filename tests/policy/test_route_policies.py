"""Route policies: golden routes, what defines each one, and both clocks."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.ids import Direction, Role, Schedule
from baton.policy.routing.decision import Decision, Fetch, Rejection, alternatives_text
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.policies import ROUTE_POLICIES
from baton.policy.routing.price import exposed_us, prefill_us, transfer_us
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.shortest_queue import shortest_queue_pair
from baton.policy.schedule import layer_visible_times
from tests.policy.route_questions import fleets, question, questions, worker

TOLERANCE = 1e-6


def choose(name: str, asked: RouteQuestion, workers: list[WorkerLoad]):
    return ROUTE_POLICIES[name].choose(asked, workers)


# -- Mooncake's eight-block request ------------------------------------------------------------


def eight_blocks(*, held=(2, 6, 8), step_ms: float = 80.0, **fields):
    """10 ms to compute and 2 ms to move a block; queues of 40, 10 and 60 ms. One row is over."""
    queues = (40_000.0, 10_000.0, 60_000.0)
    workers = [
        worker(f"P{number}", pending_us=queue_us, prefill_us_per_token=10.0)
        for number, queue_us in enumerate(queues)
    ]
    workers.append(worker("D0", Role.DECODE, decode_step_us=step_ms * 1000))
    depths = {f"P{number}": depth for number, depth in enumerate(held) if depth}
    asked = question(
        num_tokens=8001,
        block_size=1000,
        bytes_per_us=0.5,
        depths=depths,
        tpot_slo_us=100_000,
        **fields,
    )
    return choose("conductor", asked, workers)


def prices_ms(decision: Decision) -> dict[str, float]:
    found = {a.pair.prefill: a.price for a in decision.alternatives}
    found[decision.pair.prefill] = decision.price
    return {name: round(price / 1000, 1) for name, price in found.items()}


@pytest.mark.parametrize(
    ("threshold", "prices", "fetches"),
    [
        (1.0, {"P0": 52.0, "P1": 14.0, "P2": 60.0}, True),
        (2.0, {"P0": 52.0, "P1": 30.0, "P2": 60.0}, False),
        (4.0, {"P0": 100.0, "P1": 30.0, "P2": 60.0}, False),
    ],
)
def test_the_longest_prefix_loses_to_a_short_queue(threshold, prices, fetches):
    decision = eight_blocks(balancing_threshold=threshold)
    assert isinstance(decision, Decision)
    assert (decision.pair.prefill, decision.pair.decode) == ("P1", "D0")
    assert prices_ms(decision) == prices
    assert decision.fetch == (Fetch(owner="P2", num_blocks=8) if fetches else None)
    assert decision.tpot_us == 80_000


@pytest.mark.parametrize("threshold", [1.0, 4.0, 1e9])
def test_who_holds_nothing_exceeds_every_threshold(threshold):
    decision = eight_blocks(held=(2, 0, 8), balancing_threshold=threshold)
    assert prices_ms(decision)["P1"] == 26.0, "10 of queue and eight blocks of 2"
    assert decision.pair.prefill == "P1" and decision.fetch == Fetch(owner="P2", num_blocks=8)


def test_an_overloaded_decode_side_refuses_before_any_prompt_work():
    refused = eight_blocks(step_ms=120.0)
    assert isinstance(refused, Rejection)
    assert (refused.code, refused.tpot_us) == ("tpot_slo", 120_000)


# -- where reuse breaks even -------------------------------------------------------------------


@pytest.mark.parametrize(("peak_tflops", "gbytes_per_s"), [(312, 5.86), (989, 18.57)])
@pytest.mark.parametrize("policy", ["memserve", "pair"])
def test_a_fetch_pays_from_the_link_rate_of_the_formula(policy, peak_tflops, gbytes_per_s):
    """B/G > 2ds / (gqa (apd + bd^2)): LLaMA3-70B, 8192 cached tokens, eight accelerators."""
    num_layers, dim, cached, gqa, nbytes = 80, 8192, 8192, 8, 2
    flops_per_us = 8 * peak_tflops * 1e6
    source = worker(
        "p",
        prefill_us_per_token=num_layers * 22 * dim**2 / flops_per_us,
        prefill_us_per_pair=2 * num_layers * 4 * dim / flops_per_us,
    )
    workers = [source, worker("owner", Role.DECODE)]

    def fetches(rate: float) -> bool:
        asked = question(
            num_tokens=cached + 1,
            block_size=16,
            bytes_per_token=num_layers * 2 * dim * nbytes // gqa,
            bytes_per_us=rate * 1000,
            depths={"owner": cached // 16},
        )
        decision = choose(policy, asked, workers)
        assert isinstance(decision, Decision)
        return decision.fetch is not None

    low, high = 0.1, 1000.0
    assert not fetches(low) and fetches(high)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if fetches(middle) else (middle, high)
    assert high == pytest.approx(gbytes_per_s, rel=1e-3)


# -- every policy ------------------------------------------------------------------------------


@given(st.sampled_from(sorted(ROUTE_POLICIES)), questions(), fleets)
def test_every_route_is_feasible_and_none_means_there_is_no_room(name, asked, workers):
    by_id = {w.worker_id: w for w in workers}
    able = [w for w in workers if w.accepting and w.headroom_blocks >= asked.num_blocks]
    sources = [w for w in workers if w.role is Role.PREFILL]
    split = bool(sources) and any(w.role is Role.DECODE for w in able)
    outcome = choose(name, asked, workers)
    assert (outcome is None) == (not split and not any(w.role is Role.MIXED for w in able))
    if not isinstance(outcome, Decision):
        return
    prefill, decode = by_id[outcome.pair.prefill], by_id[outcome.pair.decode]
    assert decode in able and decode.role is not Role.PREFILL
    assert prefill.role is Role.PREFILL or (prefill is decode and prefill.role is Role.MIXED)
    if {w.worker_id for w in sources} - asked.avoid_prefill and prefill.role is Role.PREFILL:
        assert prefill.worker_id not in asked.avoid_prefill
    assert 0 <= outcome.prefill_reuse_tokens < asked.num_tokens, "the last row is computed"
    assert 0 <= outcome.decode_reuse_tokens <= asked.num_tokens
    if outcome.fetch is not None:
        owner = outcome.fetch.owner
        assert asked.may_fetch and asked.bytes_per_us and owner in by_id
        assert owner not in asked.avoid_prefill
        assert asked.depths.get(prefill.worker_id, 0) < outcome.fetch.num_blocks
        assert outcome.fetch.num_blocks <= asked.depths[owner]


@given(st.sampled_from(sorted(ROUTE_POLICIES)), questions(), fleets)
def test_an_answer_does_not_depend_on_the_order_of_the_workers(name, asked, workers):
    answers = [choose(name, asked, list(o)) for o in itertools.islice(_orders(workers), 4)]
    assert all(answer == answers[0] for answer in answers)


def _orders(workers):
    yield workers
    yield workers[::-1]
    yield workers[1:] + workers[:1]
    yield sorted(workers, key=lambda w: w.pending_tokens)


# -- one policy each ---------------------------------------------------------------------------


@given(questions(), fleets)
def test_the_default_is_the_shortest_queue_in_tokens(asked, workers):
    outcome = choose("shortest_queue", asked, workers)
    pair = shortest_queue_pair(workers, asked.num_blocks, asked.avoid_prefill)
    assert (outcome.pair if isinstance(outcome, Decision) else None) == pair


@given(questions(), fleets)
def test_distserve_takes_the_shortest_queue_and_pulls(asked, workers):
    outcome = choose("distserve", asked, workers)
    if isinstance(outcome, Decision):
        assert outcome.direction is Direction.PULL
        queues = {w.worker_id: w.pending_tokens for w in workers}
        pair = shortest_queue_pair(workers, asked.num_blocks, asked.avoid_prefill)
        assert pair is not None and queues[outcome.pair.prefill] == queues[pair.prefill]
        assert pair.prefill == pair.decode or outcome.pair.decode == pair.decode


def sources_of(asked: RouteQuestion, workers: list[WorkerLoad]) -> list[WorkerLoad]:
    able = [w for w in workers if w.accepting and w.headroom_blocks >= asked.num_blocks]
    mixed = [w for w in able if w.role is Role.MIXED]
    prefills = [w for w in workers if w.role is Role.PREFILL]
    good = [w for w in prefills if w.worker_id not in asked.avoid_prefill]
    return mixed or good or prefills


def execution_us(asked: RouteQuestion, source: WorkerLoad) -> tuple[float, float]:
    """What comes before the prefill from the worker's own prefix, and the prefill, by the rows."""
    depth = min(asked.depths.get(source.worker_id, 0), (asked.num_tokens - 1) // asked.block_size)
    cached = depth * asked.block_size
    pairs = sum(range(cached + 1, asked.num_tokens + 1))
    below = max(0, depth - asked.memory_depths.get(source.worker_id, 0)) * asked.block_nbytes
    load_us = below / source.tier_bytes_per_us if source.tier_bytes_per_us else 0.0
    rates = source.rates
    rows_us = rates.prefill_us_per_token * (asked.num_tokens - cached)
    return load_us, rows_us + rates.prefill_us_per_pair * pairs


def best_prefix(asked: RouteQuestion, workers: list[WorkerLoad]) -> int:
    if not asked.may_fetch:
        return 0
    live = {w.worker_id for w in workers} - asked.avoid_prefill
    most = (asked.num_tokens - 1) // asked.block_size
    return max((min(d, most) for owner, d in asked.depths.items() if owner in live), default=0)


def fetching_us(asked: RouteQuestion, source: WorkerLoad, best: int) -> tuple[float, float] | None:
    """The copy and the prefill after it; None where nothing could be fetched."""
    missing = best - asked.depths.get(source.worker_id, 0)
    if missing <= 0 or not asked.bytes_per_us:
        return None
    moved_us = missing * asked.block_nbytes / asked.bytes_per_us + asked.overhead_us
    return moved_us, prefill_us(source.rates, asked.num_tokens, best * asked.block_size)


@given(questions(), fleets)
def test_memserve_minimizes_queue_and_execution_and_fetches_only_what_pays(asked, workers):
    outcome = choose("memserve", asked, workers)
    if outcome is None:
        return
    by_id = {w.worker_id: w for w in workers}
    costs = {
        w.worker_id: w.pending_us + sum(execution_us(asked, w)) for w in sources_of(asked, workers)
    }
    chosen = by_id[outcome.pair.prefill]
    assert costs[chosen.worker_id] == pytest.approx(min(costs.values()), abs=TOLERANCE)
    fetched = fetching_us(asked, chosen, best_prefix(asked, workers))
    pays = fetched is not None and sum(fetched) <= sum(execution_us(asked, chosen)) - TOLERANCE
    assert not pays or outcome.fetch is not None
    hurts = fetched is None or sum(fetched) > sum(execution_us(asked, chosen)) + TOLERANCE
    assert not hurts or outcome.fetch is None


def algorithm_1(asked: RouteQuestion, workers: list[WorkerLoad]) -> dict[str, float]:
    best, costs = best_prefix(asked, workers), {}
    for source in sources_of(asked, workers):
        local = asked.depths.get(source.worker_id, 0)
        fetched = fetching_us(asked, source, best)
        remote = local == 0 or best / local > asked.balancing_threshold
        terms = fetched if fetched and remote else execution_us(asked, source)
        costs[source.worker_id] = source.pending_us + sum(terms)
    return costs


@given(questions(), fleets)
def test_algorithm_1_minimizes_ttft_and_its_gates_only_refuse(asked, workers):
    free = choose("global_cache_aware", asked, workers)
    gated = choose("conductor", asked, workers)
    assert (free is None) == (gated is None)
    if free is None:
        return
    costs = algorithm_1(asked, workers)
    assert costs[free.pair.prefill] == pytest.approx(min(costs.values()), abs=TOLERANCE)
    if isinstance(gated, Rejection):
        assert asked.ttft_slo_us or asked.tpot_slo_us
    else:
        assert gated.pair.prefill == free.pair.prefill and gated.fetch == free.fetch
        able = [w for w in workers if w.role is Role.DECODE and w.accepting]
        able = [w for w in able if w.headroom_blocks >= asked.num_blocks]
        if gated.pair.prefill != gated.pair.decode:
            assert gated.tpot_us == min(w.tpot_us for w in able)


def all_routes(asked: RouteQuestion, workers: list[WorkerLoad]):
    """Every route with both clocks, by the recurrence over layers: the reference for pairs."""
    able = [w for w in workers if w.accepting and w.headroom_blocks >= asked.num_blocks]
    best = best_prefix(asked, workers)
    prefills = [w for w in workers if w.role is Role.PREFILL]
    prefills = [w for w in prefills if w.worker_id not in asked.avoid_prefill] or prefills
    decodes = [w for w in able if w.role is Role.DECODE]
    mixed = [w for w in able if w.role is Role.MIXED]
    for source, sink in [*itertools.product(prefills, decodes), *((w, w) for w in mixed)]:
        before, compute = execution_us(asked, source)
        fetched = fetching_us(asked, source, best)
        if fetched is not None and sum(fetched) < before + compute - TOLERANCE:
            before, compute = fetched
        start, moved = source.pending_us + before, 0.0
        layers = asked.num_layers
        if source is not sink:
            reuse = asked.memory_depths.get(sink.worker_id, 0) * asked.block_size
            nbytes = max(0, asked.num_tokens - reuse) * asked.bytes_per_token
            moved = transfer_us(nbytes, asked.bytes_per_us, asked.overhead_us)
        if asked.schedule is Schedule.LAYER:
            ready = [start + compute * (layer + 1) / layers for layer in range(layers)]
            visible = layer_visible_times(ready, [moved / layers] * layers)[-1]
        else:
            visible = start + compute + moved
        yield visible + sink.admission_us, sink.tpot_us


@given(questions(), fleets)
def test_a_pair_is_the_best_of_all_routes_and_meets_both_clocks(asked, workers):
    outcome = choose("pair", asked, workers)
    routes = list(all_routes(asked, workers))
    ttft_slo, tpot_slo = asked.ttft_slo_us or float("inf"), asked.tpot_slo_us or float("inf")
    good = [(t, p) for t, p in routes if t <= ttft_slo + TOLERANCE and p <= tpot_slo]
    if outcome is None:
        assert not routes
    elif isinstance(outcome, Rejection):
        assert not [r for r in good if r[0] <= ttft_slo - TOLERANCE]
    else:
        assert outcome.ttft_us <= ttft_slo and outcome.tpot_us <= tpot_slo
        steps = asked.num_output_tokens
        # Of all routes in time for each token, or else the one with the earliest first token.
        in_time = [(t, p) for t, p in routes if p <= tpot_slo]
        least = min(t + steps * p for t, p in in_time)
        best = [t for t, p in in_time if t + steps * p <= least + TOLERANCE]
        total = outcome.ttft_us + steps * outcome.tpot_us
        if min(best) <= ttft_slo - TOLERANCE and max(best) <= ttft_slo:
            assert total == pytest.approx(least, abs=1e-3)
        elif min(best) > ttft_slo + TOLERANCE:
            assert outcome.ttft_us == pytest.approx(min(t for t, _ in in_time), abs=1e-3)


def test_both_sides_reuse_apart():
    """3072 of 4096 rows at the source, or at the destination: compute set and transfer set."""
    workers = [
        worker("p", prefill_us_per_token=10.0),
        worker("d", Role.DECODE),
        worker("e", Role.DECODE, active_requests=1),
    ]
    fields = {"num_tokens": 4097, "num_blocks": 257, "block_size": 16, "bytes_per_us": 1.0}
    fields |= {"may_fetch": False, "schedule": Schedule.REQUEST}
    source = choose("pair", question(depths={"p": 192}, **fields), workers)
    assert (source.prefill_reuse_tokens, source.decode_reuse_tokens) == (3072, 0)
    assert source.ttft_us == 1025 * 10 + 4097 and source.pair.decode == "d"
    sink = choose("pair", question(depths={"e": 192}, **fields), workers)
    assert (sink.prefill_reuse_tokens, sink.decode_reuse_tokens) == (0, 3072)
    assert sink.ttft_us == 4097 * 10 + 1025 and sink.pair.decode == "e"
    cold = choose("shortest_queue", question(depths={"e": 192}, **fields), workers)
    assert cold.pair.decode == "d" and cold.ttft_us == 4097 * 11


def test_a_shorter_first_token_is_taken_when_the_shortest_answer_comes_too_late():
    workers = [
        worker("p"),
        worker("fast", Role.DECODE, decode_step_us=10.0),
        worker("near", Role.DECODE, decode_step_us=100.0),
    ]
    fields = {"depths": {"near": 10}, "bytes_per_us": 1.0, "num_output_tokens": 30}
    assert choose("pair", question(**fields), workers).pair.decode == "fast"
    tight = choose("pair", question(ttft_slo_us=50, **fields), workers)
    assert tight.pair.decode == "near" and tight.ttft_us == 1
    refused = choose("pair", question(ttft_slo_us=50, tpot_slo_us=50, **fields), workers)
    assert (refused.code, refused.ttft_us, refused.wait_us) == ("ttft_slo", 101, 51)


@pytest.mark.parametrize(("us_per_token", "decode"), [(0.0, "near"), (5.0, "near"), (20.0, "idle")])
def test_a_transfer_counts_where_no_prefill_hides_it(us_per_token, decode):
    """1010 us to move and a tenth of it after the last layer; or 300 us of waiting for a step."""
    workers = [
        worker("p", prefill_us_per_token=us_per_token),
        worker("idle", Role.DECODE),
        worker("near", Role.DECODE, active_requests=1, decode_step_us=300.0),
    ]
    asked = question(depths={"near": 10}, bytes_per_us=0.1, num_layers=10, may_fetch=False)
    assert choose("pair", asked, workers).pair.decode == decode


def test_a_colocated_route_wins_where_moving_costs_more_than_waiting():
    workers = [
        worker("p", prefill_us_per_token=1.0),
        worker("d", Role.DECODE),
        worker("m", Role.MIXED, prefill_us_per_token=1.0, pending_us=50.0),
    ]
    slow = choose("pair", question(bytes_per_us=0.5, schedule=Schedule.REQUEST), workers)
    assert slow.pair.prefill == slow.pair.decode == "m"
    fast = choose("pair", question(bytes_per_us=10.0, schedule=Schedule.REQUEST), workers)
    assert (fast.pair.prefill, fast.pair.decode) == ("p", "d")


def test_random_spreads_over_all_sources_and_draws_the_same_again():
    workers = [worker(f"p{number}") for number in range(4)] + [worker("d", Role.DECODE)]
    drawn = [
        choose("random", question(draw=f"r{number}/1"), workers).pair.prefill
        for number in range(400)
    ]
    assert all(60 <= drawn.count(f"p{number}") <= 140 for number in range(4))
    again = choose("random", question(draw="r7/1"), workers).pair.prefill
    assert again == drawn[7]


def test_load_balance_sees_time_where_distserve_sees_tokens():
    workers = [
        worker("slow", pending_tokens=10, pending_us=900.0),
        worker("fast", pending_tokens=20, pending_us=100.0),
        worker("d", Role.DECODE),
    ]
    assert choose("load_balance", question(), workers).pair.prefill == "fast"
    assert choose("distserve", question(), workers).pair.prefill == "slow"


def test_local_cache_awareness_follows_the_prefix_until_its_queue_is_longer_than_the_saving():
    def chosen(queue_us: float) -> str:
        workers = [
            worker("owner", pending_us=queue_us, prefill_us_per_token=10.0),
            worker("other", prefill_us_per_token=10.0),
            worker("d", Role.DECODE),
        ]
        decision = choose("local_cache_aware", question(depths={"owner": 5}), workers)
        assert decision.fetch is None
        return decision.pair.prefill

    assert (chosen(499.0), chosen(501.0)) == ("owner", "other")


# -- prices ------------------------------------------------------------------------------------


@given(st.floats(0, 1000), st.floats(0, 1000), st.integers(1, 40), st.sampled_from(list(Schedule)))
def test_what_a_transfer_exposes_is_the_recurrence_of_layers(compute, moved, layers, schedule):
    ready = [compute * (layer + 1) / layers for layer in range(layers)]
    expected = moved
    if schedule is Schedule.LAYER:
        expected = layer_visible_times(ready, [moved / layers] * layers)[-1] - compute
    assert exposed_us(compute, moved, layers, schedule) == pytest.approx(expected, abs=1e-6)


def test_a_decode_step_grows_with_the_requests_beyond_its_batch():
    fields = {"running": 4, "decode_step_us": 1000.0, "decode_us_per_sequence": 10.0}
    assert worker("d", Role.DECODE, active_requests=2, **fields).tpot_us == 1000
    assert worker("d", Role.DECODE, active_requests=6, **fields).tpot_us == 1030
    assert worker("d", Role.DECODE, **fields).admission_us == 0
    assert worker("d", Role.DECODE, active_requests=1, **fields).admission_us == 1000


def test_alternatives_are_the_next_best_with_their_prices():
    workers = [worker(f"p{n}", pending_us=100.0 * n) for n in (3, 1, 4, 0, 2)]
    workers.append(worker("d", Role.DECODE))
    decision = choose("load_balance", question(), workers)
    assert alternatives_text(decision) == "p1>d=100 p2>d=200 p3>d=300"
