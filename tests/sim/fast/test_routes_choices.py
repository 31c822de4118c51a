"""Compiled routes choose what the production policies choose, on random fleets with many ties."""

from hashlib import blake2b
from random import Random

import msgspec
import numpy as np
import pytest

from baton.core.ids import Role, Schedule
from baton.core.snapshot import Rates
from baton.errors import ConfigError
from baton.policy.routing.decision import Decision, Outcome, Rejection
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.policies import ROUTE_POLICIES
from baton.policy.routing.question import RouteQuestion
from baton.sim.fast import routes_fleet as f
from baton.sim.fast.routes import ROUTE_CODES, choose, draws, route_code, uses_cache

NUM_BLOCKS, TOKEN_NBYTES = 40, 1000
ROLE_CODES = {Role.PREFILL: f.PREFILL, Role.DECODE: f.DECODE, Role.MIXED: f.MIXED}
FLEETS = [
    (Role.PREFILL, Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE, Role.DECODE),
    (Role.MIXED,) * 4,
    (Role.PREFILL, Role.MIXED, Role.DECODE, Role.MIXED, Role.PREFILL, Role.DECODE),
    (Role.PREFILL,) * 3 + (Role.DECODE,) * 8,
    (Role.DECODE, Role.PREFILL),
    (Role.PREFILL, Role.PREFILL),
]
EVERY_NUMBER = 720_720
"""A multiple of every fleet size: a draw below it falls on the same worker."""


def load(random: Random, worker_id: str, role: Role) -> WorkerLoad:
    step_us = random.choice([0.0, 10_000.0, 20_000.0, random.uniform(1e3, 6e4)])
    per_token = random.choice([0.0, 50.0, 50.0, random.uniform(1, 200)])
    pending = random.choice([0, 0, 1000, random.randint(0, 5000)])
    return WorkerLoad(
        worker_id=worker_id,
        role=role,
        pending_tokens=pending,
        active_requests=0 if role is Role.PREFILL else random.choice([0, 1, 1, 7]),
        headroom_blocks=random.choice([10, NUM_BLOCKS, 400, 400, random.randint(0, 900)]),
        accepting=random.random() < 0.9,
        pending_us=random.choice([pending * per_token, 0.0, random.uniform(0, 1e6)]),
        running=random.choice([0, 1, 5]),
        rates=Rates(
            prefill_us_per_token=per_token,
            prefill_us_per_pair=random.choice([0.0, 0.01]),
            decode_step_us=step_us,
            decode_us_per_sequence=random.choice([0.0, 100.0]),
        ),
    )


def question(random: Random, names: list[str]) -> RouteQuestion:
    depths = {name: random.choice([3, 10, 200, random.randint(1, 40)]) for name in names}
    depths = {name: depth for name, depth in depths.items() if random.random() < 0.6}
    return RouteQuestion(
        draw=f"r{random.randrange(10**6)}/0",
        num_tokens=random.choice([16, 17, 600, random.randint(1, 640)]),
        num_blocks=NUM_BLOCKS,
        num_output_tokens=random.choice([0, 1, 200]),
        bytes_per_token=TOKEN_NBYTES,
        num_layers=random.choice([1, 32]),
        schedule=random.choice([Schedule.LAYER, Schedule.REQUEST]),
        depths=depths,
        memory_depths={
            name: random.choice([0, depth, random.randint(0, depth)])
            for name, depth in depths.items()
        },
        bytes_per_us=random.choice([0.0, 12.0, 25.0, 100.0, 10_000.0]),
        overhead_us=random.choice([0.0, 50.0]),
        ttft_slo_us=random.choice([0, 0, 30_000, 400_000]),
        tpot_slo_us=random.choice([0, 0, 15_000, 40_000]),
        avoid_prefill=frozenset(name for name in names if random.random() < 0.15),
        balancing_threshold=random.choice([0.5, 1.0, 2.0, 10.0]),
        may_fetch=random.random() < 0.6,
    )


def fleet_of(workers: list[WorkerLoad], asked: RouteQuestion) -> f.Fleet:
    names = sorted(w.worker_id for w in workers)
    fleet = f.make_fleet(
        [ROLE_CODES[w.role] for w in workers], [names.index(w.worker_id) for w in workers]
    )
    for row, clocks, w in zip(fleet.loads, fleet.clocks, workers, strict=True):
        row[f.PENDING_TOKENS], row[f.ACTIVE] = w.pending_tokens, w.active_requests
        row[f.HEADROOM], row[f.RUNNING] = w.headroom_blocks, w.running
        row[f.CAN_HOLD] = w.accepting and w.headroom_blocks >= asked.num_blocks
        row[f.IS_AVOIDED] = w.worker_id in asked.avoid_prefill
        row[f.DEPTH] = asked.depths.get(w.worker_id, 0)
        row[f.MEMORY_DEPTH] = asked.memory_depths.get(w.worker_id, 0)
        clocks[f.PENDING_US], clocks[f.STEP_US] = w.pending_us, w.rates.decode_step_us
        clocks[f.TOKEN_US] = w.rates.prefill_us_per_token
        clocks[f.PAIR_US] = w.rates.prefill_us_per_pair
        clocks[f.SEQUENCE_US] = w.rates.decode_us_per_sequence
    return fleet


def put(fleet: f.Fleet, asked: RouteQuestion) -> None:
    drawn = int.from_bytes(blake2b(asked.draw.encode(), digest_size=8).digest(), "little")
    fleet.counts[: f.MAY_FETCH + 1] = (
        drawn % EVERY_NUMBER,
        asked.num_tokens,
        asked.num_output_tokens,
        asked.block_size,
        asked.num_layers,
        asked.schedule is Schedule.LAYER,
        asked.may_fetch,
    )
    fleet.values[: f.THRESHOLD + 1] = (
        asked.bytes_per_token,
        asked.bytes_per_us,
        asked.overhead_us,
        asked.ttft_slo_us,
        asked.tpot_slo_us,
        asked.balancing_threshold,
    )


def answer(outcome: Outcome) -> tuple:
    if outcome is None:
        return ("wait",)
    if isinstance(outcome, Rejection):
        return outcome.code, outcome.ttft_us, outcome.tpot_us
    fetch = (outcome.fetch.owner, outcome.fetch.num_blocks) if outcome.fetch else None
    clocks = outcome.ttft_us, outcome.tpot_us, outcome.price
    return outcome.pair.prefill, outcome.pair.decode, fetch, *clocks


def compiled_answer(fleet: f.Fleet, code: int, names: list[str]) -> tuple:
    clocks = tuple(fleet.values[f.CHOSEN_TTFT_US : f.CHOSEN_PRICE + 1])
    if code == f.NO_ROOM:
        return ("wait",)
    if code != f.ROUTED:
        return "tpot_slo" if code == f.MISSES_TPOT else "ttft_slo", *clocks[:2]
    prefill, decode, owner, num_blocks = fleet.counts[f.CHOSEN_PREFILL :]
    fetch = (names[owner], num_blocks) if owner >= 0 else None
    return names[prefill], names[decode], fetch, *clocks


@pytest.mark.parametrize("name", ROUTE_POLICIES)
def test_the_same_choice_as_production_with_the_same_clocks_to_the_last_bit(name):
    code, kinds = route_code(name), set()
    assert uses_cache(code) == ROUTE_POLICIES[name].uses_cache
    for seed in range(600):
        random = Random(seed)
        roles = FLEETS[seed % len(FLEETS)]
        names = [f"{role}-{k}" for k, role in enumerate(roles)]
        random.shuffle(names)
        workers = [load(random, *pair) for pair in zip(names, roles, strict=True)]
        asked = question(random, names)
        expected = ROUTE_POLICIES[name].choose(asked, workers)
        fleet = fleet_of(workers, asked)
        put(fleet, asked)
        given = fleet.loads[:, : f.RANK + 1].copy()
        found = compiled_answer(fleet, choose(fleet, code), names)
        assert found == answer(expected), f"seed {seed}"
        assert (fleet.loads[:, : f.RANK + 1] == given).all(), "the loop's columns are its own"
        kinds.add(type(expected))
    assert Decision in kinds and type(None) in kinds
    assert (Rejection in kinds) == (name in {"conductor", "pair"})


def test_pairs_are_weighed_where_transfers_and_steps_compete():
    """A decode worker that starts at once against one that has most of the prompt already."""
    policy, num_long = ROUTE_POLICIES["pair"], 0
    roles = (Role.PREFILL,) * 3 + (Role.DECODE,) * 8
    names = [f"{role}-{k:02}" for k, role in enumerate(roles)]
    for seed in range(300):
        random = Random(seed)
        workers = [load(random, *pair) for pair in zip(names, roles, strict=True)]
        asked = msgspec.structs.replace(
            question(random, names),
            num_tokens=600,
            num_output_tokens=random.choice([0, 1]),
            num_layers=32,
            schedule=Schedule.LAYER,
            memory_depths={name: random.randint(0, 37) for name in names},
            bytes_per_us=random.uniform(8.0, 40.0),
            tpot_slo_us=0,
            ttft_slo_us=0,
        )
        fleet = fleet_of(workers, asked)
        put(fleet, asked)
        expected = policy.choose(asked, workers)
        found = compiled_answer(fleet, choose(fleet, route_code("pair")), names)
        assert found == answer(expected), f"seed {seed}"
        if isinstance(expected, Decision):
            best = max(workers[3:], key=lambda w: asked.memory_depths[w.worker_id])
            num_long += expected.pair.decode != best.worker_id
    assert 20 < num_long < 280, "neither side decides alone"


def ask(fleet: f.Fleet, name: str) -> tuple[int, int]:
    put(fleet, question(Random(1), []))
    assert choose(fleet, route_code(name)) == f.ROUTED
    return fleet.counts[f.CHOSEN_PREFILL], fleet.counts[f.CHOSEN_DECODE]


def test_round_robin_takes_turns_in_each_phase_and_passes_over_who_has_no_room():
    fleet = f.make_fleet([f.PREFILL, f.PREFILL, f.DECODE, f.DECODE, f.DECODE])
    fleet.loads[3, f.CAN_HOLD] = 0
    assert [ask(fleet, "round_robin") for _ in range(4)] == [(0, 2), (1, 4), (0, 2), (1, 4)]
    fleet.loads[3, f.CAN_HOLD] = 1
    assert [ask(fleet, "round_robin") for _ in range(3)] == [(0, 2), (1, 3), (0, 4)]


def test_pending_tokens_joins_the_shortest_queue_of_tokens_in_each_phase():
    fleet = f.make_fleet([f.PREFILL, f.PREFILL, f.DECODE, f.DECODE])
    fleet.loads[:, f.PENDING_TOKENS] = [700, 600, 0, 0]
    fleet.loads[:, f.TAKEN] = [0, 0, 900, 800]
    fleet.loads[:, f.ACTIVE] = [0, 0, 1, 9]
    assert ask(fleet, "pending_tokens") == (1, 3)
    fleet.loads[3, f.CAN_HOLD] = 0
    assert ask(fleet, "pending_tokens") == (1, 2)
    mixed = f.make_fleet([f.MIXED, f.MIXED])
    mixed.loads[:, f.PENDING_TOKENS] = [500, 100]
    mixed.loads[:, f.TAKEN] = [100, 600]
    assert ask(mixed, "pending_tokens") == (0, 0)


def test_draws_are_equal_for_equal_seeds_and_spread_over_the_sources():
    fleet = f.make_fleet([f.PREFILL] * 4 + [f.DECODE])
    first = draws(5, 4000)
    assert (first == draws(5, 4000)).all() and (first != draws(6, 4000)).any()
    taken = []
    for fleet.counts[f.DRAW] in first:
        assert choose(fleet, route_code("random")) == f.ROUTED
        taken.append(fleet.counts[f.CHOSEN_PREFILL])
    counts = np.bincount(taken, minlength=4)
    assert (abs(counts - 1000) < 5 * np.sqrt(750)).all()


def test_an_unknown_route_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"route 'best': use one of .*round_robin"):
        route_code("best")
    assert set(ROUTE_CODES) == {*ROUTE_POLICIES, "round_robin", "pending_tokens"}
