"""What the cache of machine code has to know: every place that compiles is in its digest."""

import ast
from pathlib import Path

import pytest

import baton.compiled
from baton.compiled import COMPILED_FOLDERS, IS_COMPILED, compiled

ROOT = Path(baton.compiled.__file__).parent


def test_every_file_that_compiles_is_in_a_folder_that_the_digest_covers():
    outside = []
    for path in ROOT.rglob("*.py"):
        names = {
            f"{node.module}.{alias.name}"
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        place = path.relative_to(ROOT).as_posix()
        if "baton.compiled.compiled" in names and not place.startswith(COMPILED_FOLDERS):
            outside.append(place)
    assert outside == []


@compiled
def halve(number: int, least: int) -> float:
    """A callee that may fail."""
    if number < least:
        raise ValueError("below the least")
    return number / 2


@compiled
def quarter(number: int) -> float:
    """Passes a constant and a variable in the same place."""
    return halve(number, 0) + halve(number, number) - halve(4, 1)


def test_a_callee_is_compiled_once_and_its_errors_reach_python():
    assert quarter(9) == 7.0
    with pytest.raises(ValueError, match="below the least"):
        quarter(-1)
    assert halve(3, 0) == 1.5, "a callee may be called by itself, too"
    if IS_COMPILED:
        assert len(halve._lean.signatures) == 1
