"""Functions that run as machine code where numba is installed, and as plain Python where not.

Both give the same results bit for bit; only their speed differs. Machine code is kept between runs
in a folder named by a digest of every source file that may be compiled, so that an edit of a callee
can never leave a stale caller behind (numba looks at the caller's own file alone).
"""

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

_ROOT = Path(__file__).parent
COMPILED_FOLDERS = ("hardware", "sim/fast", "planner/provision", "bench/sim")
"""Where compiled functions are, and everything that they call or take constants from."""

try:
    import numba
    from numba.core import config as _numba_config

    IS_COMPILED = not _numba_config.DISABLE_JIT
except ImportError:  # the base install: correct, and slower
    IS_COMPILED = False


def _digest() -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(one for name in COMPILED_FOLDERS for one in (_ROOT / name).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(home) / "kvbaton" / "compiled" / _digest())


_FOLDER = _cache_folder() if IS_COMPILED else ""


def _make_general(dispatcher: Any) -> None:
    """One version for all integers: numba would compile one for each literal argument."""
    template = dispatcher.get_call_template

    def get_call_template(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        return template(tuple(numba.types.unliteral(one) for one in args), kws)

    dispatcher.get_call_template = get_call_template


class _Compiled:
    """One function twice: for Python, kept between runs, and lean, for compiled callers.

    The lean one has no way in from Python and counts no references to arrays: its callers hold
    them. So what compiled code calls may make no arrays and return none.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self._lean = numba.njit(
            nogil=True,
            error_model="numpy",
            no_cpython_wrapper=True,
            no_cfunc_wrapper=True,
            _nrt=False,
        )(function)
        _make_general(self._lean)
        self._entry: Callable[..., Any] | None = None

    @property
    def _numba_type_(self) -> Any:
        """What compiled callers see."""
        return self._lean._numba_type_

    def __call__(self, *args: Any) -> Any:
        if self._entry is None:
            self._entry = self._make_entry()
        return self._entry(*args)

    def _make_entry(self) -> Callable[..., Any]:
        before = _numba_config.CACHE_DIR
        _numba_config.CACHE_DIR = _FOLDER
        try:
            jit = numba.njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True)
            return cast(Callable[..., Any], jit(self.py_func))
        finally:
            _numba_config.CACHE_DIR = before


def compiled(function: Function) -> Function:
    """Compile at the first call, or keep as it is; no fast-math, so results do not depend on it."""
    return cast(Function, _Compiled(function)) if IS_COMPILED else function
