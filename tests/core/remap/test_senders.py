"""Who sends what to whom: worked examples, and what a rank holds."""

import pytest

from baton.core.layout import KVLayout
from baton.core.remap.partition import even_stages, partition_of
from baton.core.remap.senders import shares
from baton.core.remap.span import Span
from baton.errors import RemapRefused
from tests.core.remap.truth import NUM_LAYERS, shape, side

GOLDEN = {
    # (source tp, destination tp, K/V heads): by destination rank, {source rank: heads}
    (1, 1, 1): [{0: (0, 1)}],
    (1, 2, 8): [{0: (0, 4)}, {0: (4, 8)}],
    (2, 1, 8): [{0: (0, 4), 1: (4, 8)}],
    (4, 2, 4): [{0: (0, 1), 1: (1, 2)}, {2: (2, 3), 3: (3, 4)}],
    (2, 4, 2): [{0: (0, 1)}, {0: (0, 1)}, {1: (1, 2)}, {1: (1, 2)}],
    (8, 2, 2): [{0: (0, 1)}, {4: (1, 2)}],
    (8, 4, 2): [{0: (0, 1)}, {2: (0, 1)}, {4: (1, 2)}, {6: (1, 2)}],
    (8, 1, 4): [{0: (0, 1), 2: (1, 2), 4: (2, 3), 6: (3, 4)}],
    (8, 8, 1): [{rank: (0, 1)} for rank in range(8)],
    (8, 8, 2): [{rank: (rank // 4, rank // 4 + 1)} for rank in range(8)],
    (8, 8, 8): [{rank: (rank, rank + 1)} for rank in range(8)],
    (4, 8, 1): [{rank // 2: (0, 1)} for rank in range(8)],
    (1, 3, 3): [{0: (0, 1)}, {0: (1, 2)}, {0: (2, 3)}],
    (3, 1, 3): [{0: (0, 1), 1: (1, 2), 2: (2, 3)}],
    (6, 3, 3): [{0: (0, 1)}, {2: (1, 2)}, {4: (2, 3)}],
}
ALL = Span(0, NUM_LAYERS)


@pytest.mark.parametrize("case", GOLDEN, ids=str)
def test_golden_senders(case):
    from_tp, to_tp, heads = case
    of = shape(heads)
    found = [{} for _ in range(to_tp)]
    for share in shares(side(of, tp=from_tp), side(of, tp=to_tp), ALL):
        assert share.layers == ALL
        found[share.destination_rank][share.source_rank] = tuple(share.heads)
    assert found == GOLDEN[case]


def test_stages_send_the_layers_that_both_have():
    of = shape(2)
    found = shares(side(of, tp=1, pp=2), side(of, tp=2, pp=4), ALL)
    seen = [(s.source_rank, s.destination_rank, tuple(s.layers), tuple(s.heads)) for s in found]
    assert seen == [
        (0, 0, (0, 1), (0, 1)),
        (0, 1, (0, 1), (1, 2)),
        (0, 2, (1, 2), (0, 1)),
        (0, 3, (1, 2), (1, 2)),
        (0, 4, (2, 3), (0, 1)),
        (1, 4, (3, 4), (0, 1)),
        (0, 5, (2, 3), (1, 2)),
        (1, 5, (3, 4), (1, 2)),
        (1, 6, (4, 5), (0, 1)),
        (1, 7, (4, 5), (1, 2)),
    ]


def test_replicas_are_named_and_turned_through():
    of = shape(2)
    source, into = side(of, tp=8), side(of, tp=2)
    chosen = [
        [share.source_rank for share in shares(source, into, ALL, rotation)]
        for rotation in range(5)
    ]
    assert chosen == [[0, 4], [1, 5], [2, 6], [3, 7], [0, 4]]
    assert [s.source_replicas for s in shares(source, into, ALL)] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_takers_in_all_stages_share_the_replicas():
    of = shape(1)
    found = shares(side(of, tp=4), side(of, tp=2, pp=2), ALL)
    assert [(s.source_rank, s.destination_rank) for s in found] == [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    ("layers", "pp", "expected"),
    [
        (32, 1, (32,)),
        (32, 4, (8, 8, 8, 8)),
        (30, 4, (7, 8, 8, 7)),
        (31, 4, (8, 8, 8, 7)),
        (33, 4, (8, 8, 9, 8)),
        (5, 2, (3, 2)),
        (5, 5, (1, 1, 1, 1, 1)),
    ],
)
def test_default_stages_are_those_of_engines(layers, pp, expected):
    assert even_stages(layers, pp) == expected


@pytest.mark.parametrize("pp", [0, 6])
def test_a_stage_without_layers_is_refused(pp):
    with pytest.raises(RemapRefused, match="empty_stage"):
        even_stages(5, pp)


def test_the_heads_of_a_rank_come_from_the_whole_model():
    eight, two = side(shape(8), tp=4), side(shape(2), tp=8)
    assert [tuple(eight.heads_of(rank)) for rank in range(4)] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert [tuple(two.heads_of(rank)) for rank in range(8)] == [(0, 1)] * 4 + [(1, 2)] * 4
    assert list(two.holders(0, 1)) == [4, 5, 6, 7]
    assert all(rank in eight.holders(0, head) for rank in range(4) for head in range(2 * rank, 2))


def test_a_layout_of_the_whole_model_gives_its_partition():
    layout = KVLayout(
        num_layers=6,
        num_kv_heads=4,
        head_dim=8,
        block_size=16,
        dtype_v="bfloat16",
        tp_size=2,
        pp_size=4,
    )
    part = partition_of(layout, 10)
    assert part.stages == (1, 2, 2, 1) and part.num_ranks == 8
    assert part.axes.order == layout.axis_order and part.heads_per_rank == 2
    assert part.shape.token_nbytes == layout.bytes_per_token
    latent = KVLayout(num_layers=6, num_kv_heads=4, head_dim=8, block_size=16, latent_dim=20)
    assert partition_of(latent, 10).shape.token_nbytes == latent.bytes_per_token
