"""Functions that run as machine code where numba is installed, and as plain Python where not.

Both give the same results bit for bit; only their speed differs. Machine code is kept between runs
in a folder named by a digest of every source file that may be compiled, so that an edit of a callee
can never leave a stale caller behind (numba looks at the caller's own file alone).
"""

import functools
import hashlib
import os
import sys
import threading
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


def _libraries() -> tuple[Any, Any] | None:
    """Where numba puts the code of a callee, and that of a function which Python calls.

    A callee is only linked into its callers: to optimise and emit each by itself, again with all
    that it calls, would be half of the time of compiling. A caller then has everything it calls to
    itself, so that calls are taken in and what a callee does not use is not passed: states of many
    arrays are passed everywhere, and that would be most of the time of running. None where numba is
    not as it is known here: everything works then, later.
    """
    from llvmlite.binding import Linkage
    from numba.core.codegen import JITCodeLibrary

    known = ("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals")
    if not all(hasattr(JITCodeLibrary, name) for name in known):
        return None

    class Callee(JITCodeLibrary):  # type: ignore[misc]
        def _optimize_final_module(self) -> None:
            """Callers do."""

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            self._ensure_finalized()
            return 0

        @property
        def codegen(self) -> Any:
            return self

        def set_env(self, name: str, environment: Any) -> None:
            """Of a function that has no way in from Python: nobody reads it."""

    class Entry(JITCodeLibrary):  # type: ignore[misc]
        def _optimize_final_module(self) -> None:
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                    function.linkage = "internal"
            super()._optimize_final_module()

    return Callee, Entry


def _compiler(library: Any) -> Any:
    """Numba's own passes, into such a library."""
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import AnalysisPass, register_pass
    from numba.core.typed_passes import AnnotateTypes

    @register_pass(mutates_CFG=False, analysis_only=True)
    class UseLibrary(AnalysisPass):  # type: ignore[misc]
        _name = f"baton_{library.__name__.lower()}"

        def __init__(self) -> None:
            super().__init__()

        def run_pass(self, state: Any) -> bool:
            state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
            return True

    class Compiler(CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.add_pass_after(UseLibrary, AnnotateTypes)
            passes.finalize()
            return [passes]

    return Compiler


def _options() -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a callee and of an entry, where numba's own would not do."""
    libraries = _libraries() if IS_COMPILED else None
    if libraries is None:
        return {}, {}
    callee, entry = libraries
    return {"pipeline_class": _compiler(callee)}, {"pipeline_class": _compiler(entry)}


_CALLEE, _ENTRY = _options()


_NOTICE = "compiling the simulator for this machine, once (about 40 s)"
_told: list[str] = []
_SETTING = threading.Lock()


def _announce_misses(entry: Any) -> None:
    """Say on the terminal of errors, once a run, why nothing moves: no machine code was kept."""
    load = entry._cache.load_overload

    def load_overload(*args: Any) -> Any:
        found = load(*args)
        if found is None and not _told:
            _told.append(_NOTICE)
            sys.stderr.write(f"{_NOTICE}\n")
            sys.stderr.flush()
        return found

    entry._cache.load_overload = load_overload


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
            **_CALLEE,
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
        # Numba's setting is one for all threads: another's return to what was would put code here
        # into the working folder.
        with _SETTING:
            return self._jit()

    def _jit(self) -> Callable[..., Any]:
        before = _numba_config.CACHE_DIR
        _numba_config.CACHE_DIR = _FOLDER
        try:
            jit = numba.njit(
                nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True, **_ENTRY
            )
            entry = jit(self.py_func)
            _announce_misses(entry)
            return cast(Callable[..., Any], entry)
        finally:
            _numba_config.CACHE_DIR = before


def compiled(function: Function) -> Function:
    """Compile at the first call, or keep as it is; no fast-math, so results do not depend on it."""
    return cast(Function, _Compiled(function)) if IS_COMPILED else function
