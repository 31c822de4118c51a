"""The loop's time is split into upkeep, requests and chunks, whatever schedule happens to run."""

from random import Random

import pytest

from baton.runtime.chunk_cost import ChunkCost, LoopTime

IDLE_US, REQUEST_US, CHUNK_US = 1_000.0, 900.0, 650.0


def interval(cost: ChunkCost, num_requests: int, num_chunks: int, noise: float = 0.0) -> None:
    busy_us = IDLE_US + REQUEST_US * num_requests + CHUNK_US * num_chunks
    cost.observe(busy_us + noise, num_requests, num_chunks)


def settled() -> ChunkCost:
    cost = ChunkCost()
    for _ in range(30):
        interval(cost, 0, 0)
    return cost


def test_nothing_is_known_before_a_transfer_in_many_chunks():
    cost = settled()
    interval(cost, 2, 2)
    interval(cost, 1, 3)
    assert cost.chunk_us == 0.0


def test_streamed_transfers_tell_the_cost_of_a_chunk():
    cost, random = settled(), Random(1)
    for _ in range(40):
        interval(cost, 1, 0)
        for _ in range(4):
            interval(cost, 0, random.randrange(5, 15), random.uniform(-300, 300))
    assert cost.chunk_us == pytest.approx(CHUNK_US, rel=0.1)


def test_what_was_learned_outlasts_requests_that_move_at_once():
    """The choice that followed from the cost must not undo it."""
    cost = settled()
    for _ in range(20):
        interval(cost, 1, 30)
    known_us = cost.chunk_us
    for _ in range(500):
        interval(cost, 1, 1)
        interval(cost, 3, 3)
    assert cost.chunk_us == known_us
    interval(cost, 1, 30)
    assert cost.chunk_us == pytest.approx(CHUNK_US, rel=0.1)


def test_the_time_is_that_of_the_calling_thread():
    loop = LoopTime()
    loop.chunk_us()
    loop.num_requests, loop.num_chunks = 1, 50
    total = 0
    for number in range(200_000):
        total += number * number
    assert total and 10 < loop.chunk_us() < 1e5
    assert (loop.num_requests, loop.num_chunks) == (0, 0)
