"""Style as a test on the source tree: who may import what, sizes, docstrings, leftovers."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "baton"
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_COLUMNS = 400, 60, 100

PURE = {
    "core": {"core", "errors"},
    "protocol": {"core", "errors", "protocol"},
    "cache": {"core", "errors", "cache"},
    "policy": {"core", "errors", "protocol", "cache", "policy"},
    "nodes": {"core", "errors", "protocol", "cache", "policy", "config", "nodes"},
    "goodput": {"core", "errors", "goodput"},
}
"""What each pure package may import of ours."""
HOSTS = {
    "runtime": {"sim", "planner", "bench", "cli"},
    "sim": {"runtime", "planner", "bench", "cli"},
    "engine": {"runtime", "sim", "planner", "nodes", "protocol", "cache", "policy", "bench", "cli"},
    "telemetry": {"runtime", "sim", "planner", "engine", "bench", "cli"},
    "workload": {"runtime", "sim", "planner", "engine", "nodes", "bench", "cli"},
    "hardware": {"runtime", "sim", "planner", "engine", "nodes", "bench", "cli"},
    "planner": {"runtime", "engine", "bench", "cli"},
    "integrations": {"sim", "planner", "engine", "bench", "cli"},
}
"""What a host must not import of ours."""
IMPURE = {
    "asyncio",
    "concurrent",
    "datetime",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
    "torch",
    "uuid",
    "zmq",
}
ENGINE_ONLY = {"torch", "transformers", "numba", "gguf"}
INSIDE_VLLM = {
    SOURCE / "integrations" / "vllm" / "connector.py",
    SOURCE / "bench" / "vllm_child.py",
}
"""Files that only vLLM's own environment runs."""
MAY_COMPILE = {"compiled"}
"""What may import numba: all others compile through `baton.compiled`."""
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK|breakpoint\(\)|pdb)\b")
BANNED_WORD = re.compile(r"(^|_)(src|dst|dest)(_|$)")
"""Source and destination are always written out."""


def files(*roots: Path) -> list[Path]:
    found = [path for root in roots or (SOURCE,) for path in sorted(root.rglob("*.py"))]
    assert found
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def package(path: Path) -> str:
    """The first name under baton: a package, or a module at the top."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every imported module by its full name, imports inside functions included."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path, node.lineno)}: write absolute imports"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def ours(name: str) -> str:
    """The part of baton that an import names, or ""."""
    parts = name.split(".")
    return parts[1] if parts[0] == "baton" and len(parts) > 1 else ""


def outside(name: str) -> str:
    return name.split(".")[0]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def words(path: Path) -> Iterator[tuple[int, str]]:
    """Names that this file gives to things."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def test_imports_of_pure_packages_point_down():
    wrong = [
        f"{place(path, line)}: {package(path)} imports {name}"
        for path in files(*(SOURCE / name for name in PURE))
        for line, name in imports(path)
        if ours(name) and ours(name) not in PURE[package(path)]
    ]
    assert wrong == []


def test_errors_and_config_import_only_what_is_below_them():
    allowed = {"errors": set(), "config": {"core", "errors"}}
    wrong = [
        f"{place(SOURCE / f'{module}.py', line)}: {name}"
        for module, below in allowed.items()
        for line, name in imports(SOURCE / f"{module}.py")
        if ours(name) and ours(name) not in below
    ]
    assert wrong == []


def test_pure_packages_do_no_io_and_have_no_clock_or_dice():
    wrong = [
        f"{place(path, line)}: {name}"
        for path in files(*(SOURCE / name for name in PURE))
        for line, name in imports(path)
        if outside(name) in IMPURE and name != "random.Random"
    ]
    assert wrong == []


def test_hosts_do_not_import_each_other():
    wrong = [
        f"{place(path, line)}: {name}"
        for host, forbidden in HOSTS.items()
        if (SOURCE / host).exists()
        for path in files(SOURCE / host)
        for line, name in imports(path)
        if ours(name) in forbidden
    ]
    assert wrong == []


def test_only_the_engine_imports_tensor_libraries():
    wrong = [
        f"{place(path, line)}: {name}"
        for path in files()
        for line, name in imports(path)
        if outside(name) in ENGINE_ONLY
        and package(path) != "engine"
        and not (outside(name) == "numba" and package(path) in MAY_COMPILE)
    ]
    assert wrong == []


def test_only_what_runs_inside_vllm_imports_it():
    wrong = [
        f"{place(path, line)}: {name}"
        for path in files()
        for line, name in imports(path)
        if outside(name) == "vllm" and path not in INSIDE_VLLM
    ]
    assert wrong == []


def test_every_module_has_a_docstring_and_every_package_an_init():
    wrong = [place(path, 1) for path in files() if not ast.get_docstring(tree(path))]
    packages = {path.parent for path in files()}
    wrong += [f"{folder}: no __init__.py" for folder in packages if not _is_package(folder)]
    assert wrong == []


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").exists()


def test_public_names_of_pure_packages_have_docstrings():
    wrong = []
    for path in files(*(SOURCE / name for name in PURE)):
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.Module | ast.ClassDef) or _is_private(node):
                continue
            wrong += [
                f"{place(path, item.lineno)}: {item.name}"
                for item in node.body
                if isinstance(item, ast.FunctionDef | ast.ClassDef)
                and not item.name.startswith("_")
                and not ast.get_docstring(item)
            ]
    assert wrong == []


def _is_private(node: ast.Module | ast.ClassDef) -> bool:
    return isinstance(node, ast.ClassDef) and node.name.startswith("_")


def test_files_are_short():
    lengths = {path: len(path.read_text().splitlines()) for path in files()}
    wrong = {place(p, 1): n for p, n in lengths.items() if n > MAX_FILE_LINES}
    assert wrong == {}


def test_functions_are_short():
    wrong = [
        f"{place(path, node.lineno)}: {node.name} has {length} lines"
        for path in files()
        for node in functions(path)
        if (length := node.end_lineno - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert wrong == []


def test_lines_are_short_and_nothing_is_left_over():
    wrong = []
    for path in files(SOURCE, ROOT / "tests"):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if len(line) > MAX_COLUMNS:
                wrong.append(f"{place(path, number)}: {len(line)} columns")
            if LEFTOVER.search(line) and path != Path(__file__):
                wrong.append(f"{place(path, number)}: {line.strip()}")
    assert wrong == []


def test_source_and_destination_are_written_out():
    wrong = [
        f"{place(path, line)}: {name}"
        for path in files(SOURCE, ROOT / "tests")
        for line, name in words(path)
        if BANNED_WORD.search(name)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "found"),
    [("src_rank", True), ("dst", True), ("num_dst", True), ("destination", False), ("srcs", False)],
)
def test_the_word_rule_finds_abbreviations_only(text, found):
    assert bool(BANNED_WORD.search(text)) == found
