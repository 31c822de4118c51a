"""docs/remap.md is current, its example runs, and summaries say why a pairing is slow."""

import re
from pathlib import Path

import pytest

from baton.core.remap.block_table import BlockTable
from baton.core.remap.page import main, render
from baton.core.remap.plan import plan_remap
from baton.core.remap.span import Span
from baton.core.remap.summary import summarize
from baton.errors import LocalProtocolError
from tests.core.remap.truth import check, shape, side

PATH = Path(__file__).parents[3] / "docs" / "remap.md"
PAGE = PATH.read_text(encoding="utf-8")
ROW = 2 * 2
"""Bytes of one head's row in K or in V."""
TOKENS = Span(0, 20)


def test_the_tables_are_current():
    assert render(PAGE) == PAGE, "run `make docs`"


def test_the_command_fills_an_emptied_page(tmp_path):
    copy = tmp_path / "remap.md"
    emptied = re.sub(r"(<!-- generated: [\w -]+ -->\n).*?(<!-- end -->)", r"\1\2", PAGE, flags=re.S)
    copy.write_text(emptied, encoding="utf-8")
    main([str(copy)])
    assert copy.read_text(encoding="utf-8") == PAGE != emptied
    with pytest.raises(LocalProtocolError, match=r"docs/remap\.md"):
        render(PAGE.replace("<!-- end -->", "", 1))


def test_the_example_of_the_page_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    exec(compile(code, str(PATH), "exec"), {})
    assert "num_messages=8" in capsys.readouterr().out


def summary(source, into, tokens=TOKENS, **options):
    blocks = [
        BlockTable(block_ids=tuple(range(-(-tokens.stop // part.block_size))))
        for part in (source, into)
    ]
    return summarize(plan_remap(source, into, *blocks, tokens, **options))


def test_equal_orders_move_in_one_run_a_layer_and_unequal_ones_row_by_row():
    of = shape(4)
    fast = summary(side(of, "LBNHC"), side(of, "LBNHC", block=16))
    assert (fast.num_messages, fast.num_copies, fast.num_fragments) == (1, 5, 5)
    assert fast.smallest_run_nbytes == fast.largest_run_nbytes == 20 * 4 * 2 * ROW
    slow = summary(side(of, "flash-hnd"), side(of, "LBNHC"))
    assert slow.nbytes == fast.nbytes and slow.smallest_run_nbytes == ROW
    assert slow.num_fragments > 30 * fast.num_fragments and slow.num_copies <= 2 * 2 * 5


def test_a_narrower_destination_takes_heads_from_several_and_leaves_replicas_idle():
    of = shape(2)
    found = summary(side(of, tp=8), side(of, tp=1))
    share = 20 * 5 * 2 * ROW
    assert found.source_nbytes == (share, 0, 0, 0, share, 0, 0, 0)
    assert found.num_messages == 2 and found.nbytes == 2 * share


def test_whole_blocks_move_in_fewer_runs_and_with_their_padding():
    of = shape(4)
    rows = check(side(of), side(of), Span(0, 20))
    whole = check(side(of), side(of), Span(0, 20), whole_blocks=True)
    assert (rows.padding, rows.moves_padding) == (Span(20, 24), False)
    assert (whole.padding, whole.moves_padding) == (Span(20, 24), True)
    assert whole.nbytes == rows.nbytes * 24 // 20
    less = summary(side(of), side(of), whole_blocks=True)
    assert less.num_fragments == 5 < summary(side(of), side(of)).num_fragments
    assert less.num_padding_tokens == 4


def test_nothing_asked_is_nothing_moved():
    of = shape(2)
    for options in ({"tokens": Span(8, 8)}, {"layers": Span(3, 3)}):
        found = summary(side(of, tp=2), side(of), **options)
        assert (found.nbytes, found.num_copies, found.num_fragments) == (0, 0, 0)
        assert found.smallest_run_nbytes == 0 and found.source_nbytes == (0, 0)
