"""Sarathi-Serve: decode rows are never displaced, prompts keep their order, the budget holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.policy.batching.chunked import sarathi_serve_batch
from baton.policy.batching.view import BatchLimits, Entry, QueueView, Rows


def limits(tokens: int, seqs: int = 64, grid: int = 64) -> BatchLimits:
    return BatchLimits(max_batch_tokens=tokens, max_num_seqs=seqs, grid=grid)


def prompt(key: str, rows: int, position: int = 0) -> Entry:
    return Entry(key=key, position=position, num_rows=rows)


def choose(decodes: list[str], prefills: list[Entry], bounds: BatchLimits) -> list[Rows]:
    view = QueueView(decodes=[Entry(key=key) for key in decodes], prefills=prefills)
    return sarathi_serve_batch(view, bounds)


def test_decode_rows_come_first_and_prompts_fill_the_rest():
    chosen = choose(["d1", "d2"], [prompt("p1", 30), prompt("p2", 99)], limits(100))
    assert chosen == [("d1", 1), ("d2", 1), ("p1", 30), ("p2", 64)]


def test_a_prompt_never_displaces_a_decode():
    chosen = choose(["d1", "d2", "d3"], [prompt("p", 1000)], limits(3))
    assert chosen == [("d1", 1), ("d2", 1), ("d3", 1)]


def test_nobody_overtakes_the_head_of_the_queue():
    queue = [prompt("long", 1000), prompt("short", 1)]
    assert choose([], queue, limits(70)) == [("long", 64)]
    queue = [prompt("long", 40, 960), prompt("short", 1)]
    assert choose([], queue, limits(70)) == [("long", 40), ("short", 1)]


@pytest.mark.parametrize(
    ("position", "budget", "rows"),
    [(0, 100, 64), (0, 64, 64), (10, 100, 54), (64, 100, 64), (0, 63, 63), (60, 3, 3), (60, 5, 4)],
)
def test_a_chunk_that_does_not_end_its_prompt_is_cut_on_the_grid(position, budget, rows):
    chosen = choose([], [prompt("p", 1000, position)], limits(budget))
    assert chosen == [("p", rows)]


def test_the_last_chunk_of_a_prompt_is_not_cut():
    assert choose([], [prompt("p", 37, 64)], limits(100)) == [("p", 37)]


def test_sequences_are_bounded_too():
    chosen = choose(["d1", "d2"], [prompt("p1", 1), prompt("p2", 1)], limits(100, 3))
    assert chosen == [("d1", 1), ("d2", 1), ("p1", 1)]


def test_more_decodes_than_the_token_budget_run_in_their_order():
    assert choose(["d1", "d2", "d3"], [prompt("p", 5)], limits(2)) == [
        ("d1", 1),
        ("d2", 1),
    ]


def test_nothing_waiting_is_no_step():
    assert choose([], [], limits(10)) == []


@given(
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 200)), max_size=8),
    st.integers(1, 200),
    st.integers(1, 12),
    st.sampled_from([1, 16, 64]),
)
def test_laws_of_every_batch(num_decodes, waiting, tokens, seqs, grid):
    decodes = [f"d{i}" for i in range(num_decodes)]
    prefills = [prompt(f"p{i}", rows, at) for i, (rows, at) in enumerate(waiting)]
    chosen = choose(decodes, prefills, limits(tokens, seqs, grid))
    keys, rows = [key for key, _ in chosen], dict(chosen)
    assert len(set(keys)) == len(keys) <= seqs
    assert sum(rows.values()) <= tokens, "the budget is never exceeded"
    assert all(count > 0 for count in rows.values())
    assert bool(chosen) == bool(decodes or prefills), "a step always makes progress"
    running = keys[: min(num_decodes, seqs, tokens)]
    assert running == decodes[: len(running)], "decodes in order, before any prompt"
    assert all(rows[key] == 1 for key in running)
    taken = keys[len(running) :]
    assert taken == [item.key for item in prefills[: len(taken)]], "first come, first served"
    for item in prefills[: len(taken)]:
        end = item.position + rows[item.key]
        full = rows[item.key] == item.num_rows
        assert full or item.key == taken[-1], "only the last prompt of a step is cut"
        assert full or end % grid == 0 or sum(rows.values()) == tokens
