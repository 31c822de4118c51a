"""KV-Runahead: the search is exact on small prompts, the pipeline obeys its recurrence."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import ConfigError
from baton.planner.reproduce.context import Context
from baton.planner.reproduce.r27 import REPRODUCTION
from baton.planner.runahead.partition import Partition, equal_partition, scaled_partition
from baton.planner.runahead.pipeline import (
    LayerCosts,
    Link,
    gathered_us,
    runahead_us,
    transformer_costs,
)
from baton.planner.runahead.search import largest_dense, largest_triangular, search_partition
from baton.planner.runahead.table import Manifest, PartitionTable, searched

A100 = {"flops_per_us": 312e6 * 0.5, "nbytes_per_us": 2.039e6}
LLAMA_7B = {
    "num_layers": 32,
    "model_dim": 4096,
    "ffn_dim": 11008,
    "num_heads": 32,
    "num_kv_heads": 32,
    "head_dim": 128,
}
COSTS = transformer_costs(**LLAMA_7B, **A100, fused=False)
MANIFEST = Manifest(
    model="llama-7b",
    num_processes=4,
    kernel="unfused",
    dtype="float16",
    topology="300 GB/s",
    cache_layout="layer,kv,row",
)


def everything(num_rows, num_processes):
    cuts = itertools.combinations(range(1, num_rows), num_processes - 1)
    return np.array([np.diff((0, *cut, num_rows)) for cut in cuts])


@pytest.mark.parametrize("cost_of", [largest_dense, largest_triangular])
@pytest.mark.parametrize(("num_rows", "num_processes"), [(24, 2), (24, 3), (32, 4)])
def test_a_search_finds_what_trying_everything_finds(cost_of, num_rows, num_processes):
    found = search_partition(num_rows, num_processes, cost_of, stride=4)
    every = everything(num_rows, num_processes)
    assert cost_of(np.array([found.rows]))[0] == cost_of(every).min()


def test_a_search_on_the_pipelines_time_finds_the_best_of_all():
    costs = LayerCosts(
        num_layers=3, row_nbytes=1000, project_row_us=3.0, rest_row_us=5.0, pair_us=1.0
    )
    link = Link(bytes_per_us=250.0, latency_us=7.0)
    found = search_partition(28, 3, lambda rows: runahead_us(rows, costs, link), stride=4)
    best = runahead_us(everything(28, 3), costs, link).min()
    assert runahead_us(np.array([found.rows]), costs, link)[0] == best


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 400),
    st.lists(st.floats(0.01, 1, allow_nan=False), min_size=1, max_size=6),
)
def test_scaled_shares_cover_the_prompt_exactly(num_rows, shares):
    if num_rows < len(shares):
        with pytest.raises(ConfigError, match="at least 1 row"):
            scaled_partition(shares, num_rows)
        return
    partition = scaled_partition(shares, num_rows)
    assert partition.num_rows == num_rows
    assert min(partition.rows) >= 1


def test_the_pipeline_by_hand():
    """Two processes, two layers: the second waits for the first one's K/V of each layer."""
    costs = LayerCosts(
        num_layers=2, row_nbytes=10, project_row_us=1.0, rest_row_us=2.0, pair_us=0.5
    )
    link = Link(bytes_per_us=2.0, latency_us=3.0)
    # First: project 4, attend 8, rest 8 a layer; K/V of 4 rows takes 20 + 3 on the link.
    # Second, 2 rows: project 2, attend 2 * 6 / 2, rest 4. It has layer 0 at 4 + 23 = 27,
    # is done at 27 + 6 + 4 = 37; layer 1 leaves at 20 + 4 = 24, waits for the link until 27,
    # arrives at 50; done at 50 + 10.
    assert runahead_us(np.array([[4, 2]]), costs, link)[0] == 60.0
    # A wide link: layer 0 at 4 + 3; the second one waits for projections of the first alone.
    fast = Link(bytes_per_us=1e12, latency_us=3.0)
    assert runahead_us(np.array([[4, 2]]), costs, fast)[0] == pytest.approx(27 + 10)
    # Gathered: project 3, one hop of 3 rows 15 + 3, attend 3 * 6 / 2, rest 6; twice.
    assert gathered_us(6, 2, costs, link) == 2 * (3 + 18 + 9 + 6)


def test_one_process_needs_no_link_whatever_the_way():
    alone = runahead_us(np.array([[4096]]), COSTS, Link(bytes_per_us=1.0))[0]
    assert alone == pytest.approx(gathered_us(4096, 1, COSTS, Link(bytes_per_us=1.0)))


@pytest.mark.parametrize("gbytes_per_s", [300, 10])
def test_searched_beats_equal_beats_nothing_moves_for_free(gbytes_per_s):
    link = Link(bytes_per_us=gbytes_per_s * 1000)
    cost = lambda rows: runahead_us(rows, COSTS, link)  # noqa: E731
    best = search_partition(8192, 4, cost, stride=512, finest=32)
    times = cost(np.array([equal_partition(8192, 4).rows, best.rows]))
    assert times[1] < times[0] < gathered_us(8192, 4, COSTS, link)


def test_a_table_interpolates_within_its_setting_alone():
    table = PartitionTable(
        manifest=MANIFEST,
        entries=searched([Partition((600, 200, 150, 50)), Partition((1000, 500, 300, 200))]),
    )
    assert table.partition(1500, MANIFEST).rows == (825, 337, 226, 112)
    with pytest.raises(ConfigError, match="outside 1000 to 2000"):
        table.partition(2001, MANIFEST)
    other = Manifest(
        model="llama-7b",
        num_processes=4,
        kernel="unfused",
        dtype="float16",
        topology="10 GB/s",
        cache_layout="layer,kv,row",
    )
    with pytest.raises(ConfigError, match="topology '10 GB/s', searched for '300 GB/s'"):
        table.partition(1500, other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Partition((3, 0)), "at least 1 row"),
        (lambda: equal_partition(2, 3), "2 prompt rows over 3 processes"),
        (lambda: search_partition(8, 4, largest_dense, stride=4), "use a smaller stride"),
        (lambda: search_partition(4096, 6, largest_dense, stride=8), "use a larger stride"),
        (lambda: search_partition(64, 2, largest_dense, stride=4, finest=8), "in this order"),
    ],
)
def test_what_cannot_be_partitioned_is_refused(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_the_published_comparison_reproduces(tmp_path):
    rows = REPRODUCTION.run(Context(folder=tmp_path))
    assert [row.what for row in rows if row.met is not True] == []
    assert len(rows) == 7
