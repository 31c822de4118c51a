"""docs/protocol.md says what the code does: generated parts are current, checks are complete."""

import re
from pathlib import Path

import pytest

from baton.errors import LocalProtocolError
from baton.protocol import diagrams
from baton.protocol.diagrams import PARTS, fields_of, main, render
from tests.protocol import handoff
from tests.protocol.handoff import FENCE

PATH = Path(__file__).parents[2] / "docs" / "protocol.md"
PAGE = PATH.read_text(encoding="utf-8")


def test_the_generated_parts_are_current():
    assert render(PAGE) == PAGE, "run `make docs`"


def test_rendering_fills_an_emptied_page_and_keeps_the_prose():
    emptied = re.sub(r"(<!-- generated: [\w -]+ -->\n).*?(<!-- end -->)", r"\1\2", PAGE, flags=re.S)
    assert "stateDiagram" in PAGE and "stateDiagram" not in emptied
    assert render(emptied) == PAGE


def test_the_command_rewrites_the_page_in_place(tmp_path):
    copy = tmp_path / "protocol.md"
    copy.write_text(PAGE.replace("RESERVED --> TRANSFERRING: start", "outdated"), encoding="utf-8")
    main([str(copy)])
    assert copy.read_text(encoding="utf-8") == PAGE


@pytest.mark.parametrize("name", PARTS)
def test_a_page_without_one_of_the_parts_is_refused(name):
    broken = PAGE.replace(f"<!-- generated: {name} -->", "")
    with pytest.raises(LocalProtocolError, match=r"docs/protocol\.md"):
        render(broken)


@pytest.mark.parametrize(
    "broken",
    [
        PAGE + "<!-- generated: nonsense -->\n<!-- end -->",
        PAGE + "<!-- generated: messages -->\n<!-- end -->",
        PAGE + "<!-- generated: values -->\n",
        PAGE + "<!-- end -->\n",
    ],
    ids=["unknown part", "part twice", "no end", "no begin"],
)
def test_a_wrong_marker_is_refused(broken):
    with pytest.raises(LocalProtocolError):
        render(broken)


def test_fields_carry_type_default_and_meaning():
    fields = {field.name: field for field in fields_of(diagrams.Grant)}
    assert fields["block_ids"].type == "tuple[int, ...]"
    assert fields["token_start"].meaning.startswith("First transferred token")
    assert fields_of(type(FENCE))[-1].default == "0"
    assert [f.name for f in fields_of(type(FENCE))] == list(type(FENCE).__struct_fields__)


def test_the_page_lists_every_check_of_a_manifest_in_its_order():
    section = PAGE.partition("## 6.")[2].partition("## 7.")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    transfer = handoff.complete_destination()
    assert transfer.manifest is not None
    checked = [name for name, _ in transfer._checks(transfer.manifest)]
    assert listed == list(dict.fromkeys(checked))


def test_table_rows_have_the_cells_of_their_header():
    width = 0
    for line in PAGE.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (width and cells) or cells == width, line
        width = cells
