"""Laws of every batch policy, and what defines each one, as a pure function of the queue."""

from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.config import WorkerConfig
from baton.core.ids import PromptOrder
from baton.policy.batching.policies import POLICIES
from baton.policy.batching.preemption import Preemptible, choose_victim
from baton.policy.batching.priority import choose_mixed_phase
from baton.policy.batching.view import BatchLimits, Entry, QueueView, Rows

CHUNKED = ("sarathi", "sarathi_serve", "token_budget")
WHOLE = ("static", "orca", "prefill_first", "decode_first", "whole_hybrid")


def limits(tokens: int = 100, seqs: int = 64, **fields) -> BatchLimits:
    return BatchLimits(max_batch_tokens=tokens, max_num_seqs=seqs, **{"grid": 1, **fields})


def prompt(key: str, rows: int, arrival: int = 0, **fields) -> Entry:
    return Entry(key=key, num_rows=rows, arrival=arrival, **fields)


def decode(key: str, arrival: int = 0, **fields) -> Entry:
    return Entry(key=key, position=50, arrival=arrival, **{"num_iterations": 1, **fields})


def choose(name: str, bounds: BatchLimits, decodes=(), prefills=()) -> list[Rows]:
    return POLICIES[name].select(QueueView(decodes=decodes, prefills=prefills), bounds)


def test_configuration_names_exactly_the_policies_there_are():
    named = get_args(get_type_hints(WorkerConfig)["batch_policy"])
    assert sorted(named) == sorted(POLICIES)


prefill_entries = st.lists(
    st.tuples(st.integers(1, 300), st.integers(0, 200), st.integers(0, 3), st.booleans()),
    max_size=8,
)


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(
    num_decodes=st.integers(0, 12),
    waiting=prefill_entries,
    tokens=st.integers(1, 200),
    seqs=st.integers(1, 12),
    grid=st.sampled_from([1, 16, 64]),
    passed_over=st.integers(0, 3),
    order=st.sampled_from(list(PromptOrder)),
)
def test_laws_of_every_policy(name, num_decodes, waiting, tokens, seqs, grid, passed_over, order):
    decodes = [
        decode(f"d{i}", arrival=2 * i + 1, num_passed_over=passed_over, waited_us=passed_over)
        for i in range(num_decodes)
    ]
    prefills = [
        prompt(f"p{i}", rows, 2 * i + 2, position=at, num_iterations=ran, has_blocks=blocks)
        for i, (rows, at, ran, blocks) in enumerate(waiting)
    ]
    bounds = limits(tokens, seqs, grid=grid, prompt_order=order, max_passed_over=2, num_slots=1000)
    chosen = choose(name, bounds, decodes, prefills)
    entries = {entry.key: entry for entry in (*decodes, *prefills)}
    assert len({key for key, _ in chosen}) == len(chosen), "nobody runs twice in a step"
    assert all(1 <= rows <= entries[key].num_rows for key, rows in chosen)
    assert bool(chosen) == bool(entries), "a step always makes progress"
    if name not in ("static", "orca"):
        assert len(chosen) <= seqs
    if name in CHUNKED:
        assert sum(rows for _, rows in chosen) <= tokens, "the budget is never exceeded"
    if name in WHOLE:
        assert all(rows == entries[key].num_rows for key, rows in chosen), "prompts are not cut"
    assert chosen == choose(name, bounds, decodes, prefills)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_prompt_that_gets_no_blocks_is_not_chosen(name):
    short = prompt("p", 9, 1, has_blocks=False, is_short=True)
    assert choose(name, limits(), prefills=[short]) == []


# -- ORCA ----------------------------------------------------------------------------------------


def test_orca_takes_the_earliest_whatever_their_phase_and_does_not_cut():
    chosen = choose(
        "orca",
        limits(10, seqs=3),
        [decode("d4", 4), decode("d1", 1)],
        [prompt("p2", 500, 2), prompt("p3", 7, 3)],
    )
    assert chosen == [("d1", 1), ("p2", 500), ("p3", 7)]


def test_orca_reserves_the_whole_length_and_does_not_skip_ahead():
    running = decode("d", 1, reserved_tokens=60)
    big = prompt("big", 10, 2, reserved_tokens=50)
    small = prompt("small", 5, 3, reserved_tokens=10)
    assert choose("orca", limits(num_slots=100), [running], [big, small]) == [("d", 1)]
    assert choose("orca", limits(num_slots=110), [running], [big, small]) == [("d", 1), ("big", 10)]
    assert len(choose("orca", limits(num_slots=120), [running], [big, small])) == 3


# -- static --------------------------------------------------------------------------------------


def test_static_lets_nobody_join_a_batch_that_has_started():
    member = decode("d", 1)
    assert choose("static", limits(), [member], [prompt("p", 5, 2)]) == [("d", 1)]
    assert choose("static", limits(), [], [prompt("p", 5, 2), prompt("q", 5, 3)]) == [
        ("p", 5),
        ("q", 5),
    ]


# -- SARATHI, Sarathi-Serve, vLLM v1 -------------------------------------------------------------


def test_sarathi_anchors_a_step_with_one_chunk_and_fills_the_tile_exactly():
    decodes = [decode(f"d{i}", i) for i in range(17)]
    prompts = [prompt("p", 1000, 20), prompt("q", 30, 21)]
    chosen = choose("sarathi", limits(256, seqs=18), decodes, prompts)
    assert chosen[-1] == ("p", 256 - 17) and len(chosen) == 18
    assert choose("sarathi", limits(256), decodes) == [(d.key, 1) for d in decodes]
    last = choose("sarathi", limits(256), [], [prompt("p", 10, 1), prompt("q", 30, 2)])
    assert last == [("p", 10)], "exactly one prompt, whatever room is left"


def test_the_best_ratio_of_sarathi_leaves_no_decode_without_a_chunk():
    """P:D = C/(B-1): P/C chunks carry exactly D decode iterations of B-1 sequences each."""
    chunk, num_decodes, prompt_rows = 239, 17, 239 * 14
    left, iterations = prompt_rows, 0
    while left:
        decodes = [decode(f"d{i}", i) for i in range(num_decodes)]
        chosen = dict(choose("sarathi", limits(256, 18), decodes, [prompt("p", left, 99)]))
        left -= chosen["p"]
        iterations += num_decodes
    assert iterations == prompt_rows / (chunk / num_decodes)


def test_the_token_budget_goes_by_arrival_and_not_by_phase():
    decodes, started = [decode("d5", 5)], prompt("p1", 80, 1, num_iterations=2)
    fresh = [prompt("p2", 90, 2), prompt("p3", 90, 3)]
    chosen = choose("token_budget", limits(100), decodes, [started, *fresh])
    assert chosen == [("p1", 80), ("d5", 1), ("p2", 19)]


# -- one phase first -----------------------------------------------------------------------------


def test_prefill_first_leaves_decodes_out_until_they_lose_patience():
    prompts = [prompt("p", 60, 2), prompt("q", 60, 3)]
    fresh, aged = decode("fresh", 0), decode("aged", 1, waited_us=50_000)
    often = decode("often", 1, num_passed_over=4)
    assert choose("prefill_first", limits(), [fresh], prompts) == [("p", 60)]
    bounds = limits(age_override_us=50_000, max_passed_over=4)
    chosen = choose("prefill_first", bounds, [fresh, aged, often], prompts)
    assert chosen == [("aged", 1), ("often", 1), ("p", 60)]
    assert choose("prefill_first", limits(), [fresh, aged]) == [("fresh", 1), ("aged", 1)]


def test_whole_hybrid_runs_decodes_in_the_room_that_whole_prompts_leave():
    prompts = [prompt("p", 60, 5), prompt("q", 38, 6), prompt("r", 5, 7)]
    decodes = [decode(f"d{i}", i) for i in range(5)]
    chosen = choose("whole_hybrid", limits(), decodes, prompts)
    assert chosen == [("d0", 1), ("d1", 1), ("p", 60), ("q", 38)]
    assert choose("whole_hybrid", limits(), decodes) == [(f"d{i}", 1) for i in range(5)]
    # A prompt above the whole budget leaves no room, except for who has lost patience.
    long, often = prompt("long", 700, 5), decode("often", 4, num_passed_over=4)
    assert choose("whole_hybrid", limits(), decodes, [long]) == [("long", 700)]
    bounds = limits(max_passed_over=4)
    chosen = choose("whole_hybrid", bounds, [*decodes[:4], often], [long])
    assert chosen == [("often", 1), ("long", 700)]


def test_a_prompt_above_the_whole_budget_runs_alone_and_whole():
    chosen = choose("prefill_first", limits(100), [], [prompt("p", 700, 1), prompt("q", 1, 2)])
    assert chosen == [("p", 700)]


def test_decode_first_lets_prompts_wait_until_they_lose_patience():
    prompts = [prompt("p", 60, 2), prompt("old", 30, 3, waited_us=90)]
    assert choose("decode_first", limits(), [decode("d", 1)], prompts) == [("d", 1)]
    bounds = limits(age_override_us=90)
    assert choose("decode_first", bounds, [decode("d", 1)], prompts) == [("d", 1), ("old", 30)]
    assert choose("decode_first", limits(), [], prompts) == [("p", 60), ("old", 30)]


@pytest.mark.parametrize(
    ("pending", "fields", "phase"),
    [
        (False, {}, "token"),
        (True, {}, "prompt"),
        (True, {"waited_us": 49_999, "num_passed_over": 3}, "prompt"),
        (True, {"waited_us": 50_000}, "token"),
        (True, {"num_passed_over": 4}, "token"),
    ],
)
def test_the_mixed_phase_of_the_specification(pending, fields, phase):
    bounds = limits(age_override_us=50_000, max_passed_over=4)
    assert choose_mixed_phase(pending, decode("d", **fields), bounds) == phase


# -- phase-pure ----------------------------------------------------------------------------------


def test_first_come_first_served_does_not_fill_the_rest_of_the_cap():
    queue = [prompt("a", 1000, 1), prompt("b", 700, 2), prompt("c", 600, 3)]
    chosen = choose("phase_pure", limits(2048), [], queue)
    assert chosen == [("a", 1000), ("b", 700)]
    assert 2048 - sum(rows for _, rows in chosen) == 348


@pytest.mark.parametrize(("order", "keys"), [("fcfs", "abc"), ("sjf", "cba"), ("ljf", "abc")])
def test_prompt_order(order, keys):
    queue = [prompt("a", 30, 1), prompt("b", 20, 2), prompt("c", 10, 3)]
    if order == "ljf":
        queue = [*reversed(queue)]
    chosen = choose("phase_pure", limits(prompt_order=PromptOrder(order)), [], queue)
    assert "".join(key for key, _ in chosen) == keys


def test_prompt_order_looks_no_further_than_its_window_and_never_at_a_started_prompt():
    queue = [prompt("started", 90, 1, num_iterations=1), prompt("a", 9, 2), prompt("b", 8, 3)]
    queue.append(prompt("short", 1, 4))
    bounds = limits(1000, prompt_order=PromptOrder.SJF, prompt_window=2)
    chosen = choose("phase_pure", bounds, [], queue)
    assert [key for key, _ in chosen] == ["started", "b", "a", "short"]


def test_phases_never_share_a_step_and_alternate_when_both_wait():
    prompts = [prompt("p", 300, 2)]
    assert choose("phase_pure", limits(100), [decode("d", 1)], prompts) == [("p", 100)]
    passed = decode("d", 1, num_passed_over=1)
    assert choose("phase_pure", limits(100), [passed], prompts) == [("d", 1)]


# -- preemption ----------------------------------------------------------------------------------


def victim(*running: Preemptible, cap: int = 2, age_us: int = 0) -> str:
    return choose_victim(running, max_preemptions=cap, age_override_us=age_us)


def test_the_latest_yields_unless_it_has_yielded_often_or_is_old():
    a, b, c = (Preemptible(key=key) for key in "abc")
    assert victim(a, b, c) == "c"
    assert victim(a, b, Preemptible(key="c", num_preemptions=2)) == "b"
    assert victim(a, b, Preemptible(key="c", age_us=70), age_us=70) == "b"
    assert victim(a, b, Preemptible(key="c", num_preemptions=2), cap=0) == "c"


def test_the_first_is_spared_while_there_is_another_and_somebody_always_yields():
    capped = [Preemptible(key=key, num_preemptions=2) for key in "ab"]
    assert victim(*capped) == "b"
    assert victim(Preemptible(key="a"), capped[1]) == "b"
    assert victim(capped[0]) == "a"
