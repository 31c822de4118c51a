"""Functions that run as machine code where numba is installed, and as plain Python where not.

Both give the same results bit for bit; only their speed differs. Machine code is kept between runs
in a folder named by a digest of every source file that may be compiled, so that an edit of a callee
can never leave a stale caller behind (numba looks at the caller's own file alone).
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

_ROOT = Path(__file__).parent
COMPILED_FOLDERS = ("hardware", "sim/fast", "planner/provision")
"""Where compiled functions are, and everything that they call or take constants from."""

try:
    import numba
    from numba.core import config as _numba_config

    IS_COMPILED = True
except ImportError:  # the base install: correct, and slower
    IS_COMPILED = False


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(one for name in COMPILED_FOLDERS for one in (_ROOT / name).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(home) / "kvbaton" / "compiled" / _digest())


_FOLDER = _cache_folder() if IS_COMPILED else ""


def compiled(function: Function) -> Function:
    """Compile at the first call, or keep as it is; no fast-math, so results do not depend on it."""
    if not IS_COMPILED:
        return function
    before = _numba_config.CACHE_DIR
    _numba_config.CACHE_DIR = _FOLDER
    try:
        return cast(Function, numba.njit(nogil=True, cache=True, error_model="numpy")(function))
    finally:
        _numba_config.CACHE_DIR = before
