"""What the cache of machine code has to know: every place that compiles is in its digest."""

import ast
import os
import subprocess
import sys
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
        # None where the caller came out of the cache of an earlier run, compiled with it.
        assert len(halve._lean.signatures) <= 1


ONE_FUNCTION = """
from baton.compiled import compiled
@compiled
def twice(number):
    return 2 * number
print(twice(2), twice(2.5))
"""


@pytest.mark.skipif(not IS_COMPILED, reason="without numba nothing is compiled")
def test_a_cold_cache_is_told_once_on_the_terminal_of_errors_and_a_warm_one_is_not(tmp_path):
    script = tmp_path / "one.py"
    script.write_text(ONE_FUNCTION)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    runs = [
        subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True
        )
        for _ in range(2)
    ]
    assert [one.stdout for one in runs] == ["4 5.0\n"] * 2
    assert runs[0].stderr == "compiling the simulator for this machine, once (about 40 s)\n"
    assert runs[1].stderr == ""


THREADS = """
import itertools, os, time
from concurrent.futures import ThreadPoolExecutor
import numba
from baton.compiled import compiled
def makes(number):
    scope = {}
    exec(compile(f"def by_{number}(x):\\n    return {number} * x", __file__, "exec"), scope)
    return compiled(scope[f"by_{number}"])
functions = [makes(number) for number in range(6)]
njit, turns = numba.njit, itertools.count(1)
def slow(**options):  # each thread is overtaken by those before it
    time.sleep(0.05 * next(turns))
    return njit(**options)
numba.njit = slow
with ThreadPoolExecutor(6) as pool:
    entries = list(pool.map(lambda one: one._make_entry(), functions))
home = os.environ["XDG_CACHE_HOME"]
print([one._cache.cache_path.startswith(home) for one in entries], os.listdir("."))
"""


@pytest.mark.skipif(not IS_COMPILED, reason="without numba nothing is compiled")
def test_threads_that_compile_at_once_keep_their_code_in_the_cache(tmp_path):
    script, place = tmp_path / "threads.py", tmp_path / "place"
    script.write_text(THREADS)
    place.mkdir()
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, cwd=place
    )
    assert found.stdout == f"{[True] * 6} []\n", found.stderr
