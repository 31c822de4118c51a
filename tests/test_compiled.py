"""What the cache of machine code has to know: every place that compiles is in its digest."""

import ast
from pathlib import Path

import baton.compiled
from baton.compiled import COMPILED_FOLDERS

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
