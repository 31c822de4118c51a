"""Specification 0x0CA and 0x0CB: 96 prompt rows on three processes, to the last pair and byte."""

import pytest

from baton.planner.runahead.partition import (
    Partition,
    equal_partition,
    gathered_rows,
    least_dense_pairs,
    scaled_partition,
)
from baton.planner.runahead.search import largest_dense, largest_triangular, search_partition

NUM_LAYERS, ROW_NBYTES = 4, 2 * 8 * 128 * 2


@pytest.mark.parametrize(
    ("rows", "dense", "triangular", "handed", "nbytes"),
    [
        ((32, 32, 32), (1024, 2048, 3072), (528, 1552, 2576), 96, 1_572_864),
        ((40, 32, 24), (1600, 2304, 2304), (820, 1808, 2028), 112, 1_835_008),
        ((46, 28, 22), (2116, 2072, 2112), (1081, 1694, 1881), 120, 1_966_080),
        ((48, 28, 20), (2304, 2128, 1920), (1176, 1750, 1730), 124, 2_031_616),
        ((44, 30, 22), (1936, 2220, 2112), (990, 1785, 1881), 118, 1_933_312),
    ],
)
def test_work_and_traffic_of_a_partition(rows, dense, triangular, handed, nbytes):
    partition = Partition(rows)
    assert partition.dense_pairs == dense
    assert partition.triangular_pairs == triangular
    assert partition.handed_rows == handed
    assert partition.nbytes(NUM_LAYERS, ROW_NBYTES) == nbytes
    assert sum(dense) == (96**2 + sum(n * n for n in rows)) / 2
    assert sum(triangular) == 96 * 97 // 2
    assert partition.owner == 2


def test_an_all_gather_moves_more_than_either_partition():
    assert gathered_rows(96, 3) == 192
    assert gathered_rows(96, 3) * NUM_LAYERS * ROW_NBYTES == 3_145_728
    assert equal_partition(96, 3).handed_rows == 96 == gathered_rows(96, 3) / 2


def test_no_partition_is_below_the_bound():
    assert least_dense_pairs(96, 3) == 2048
    assert max(Partition((46, 28, 22)).dense_pairs) >= 2048


def test_hierarchical_search_refines_from_stride_8_to_stride_1():
    coarse = search_partition(96, 3, largest_dense, stride=8, finest=8)
    assert coarse.rows == (40, 32, 24)
    tied = Partition((48, 24, 24))  # as much work for the busiest process, and more to hand on
    assert max(tied.dense_pairs) == max(coarse.dense_pairs) == 2304
    assert (coarse.handed_rows, tied.handed_rows) == (112, 120)
    assert search_partition(96, 3, largest_dense, stride=8).rows == (46, 28, 22)
    assert search_partition(96, 3, largest_triangular, stride=8).rows == (55, 23, 18)


def test_two_processes_balance_at_the_closed_forms():
    dense = search_partition(10_000, 2, largest_dense, stride=1000)
    assert dense.rows[0] / 10_000 == pytest.approx((5**0.5 - 1) / 2, abs=1e-4)
    triangular = search_partition(10_000, 2, largest_triangular, stride=1000)
    assert triangular.rows[0] / 10_000 == pytest.approx(0.5**0.5, abs=1e-4)


def test_interpolated_shares_keep_every_row():
    partition = scaled_partition((0.479, 0.292, 0.229), 96)
    assert partition.rows == (46, 28, 22)
