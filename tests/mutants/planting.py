"""Loads one module with one line changed, in this process only: nothing on disk is touched.

As a pytest plugin: BATON_MUTANT=credit-unbounded python -m pytest -p tests.mutants.planting ...
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tests.mutants.mutant import Mutant, plant

VARIABLE = "BATON_MUTANT"


class _Loader(SourceFileLoader):
    """Compiles the changed text itself, so that no cached bytecode is read or written."""

    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        text = plant(self._mutant, Path(self.path).read_text())
        return compile(text, self.path, "exec", dont_inherit=True)


class Planter(MetaPathFinder):
    """Answers for one module; `is_loaded` tells that the planted code really runs."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    @property
    def is_loaded(self) -> bool:
        """True when the changed module was imported."""
        module = sys.modules.get(self._mutant.module)
        return isinstance(getattr(module, "__loader__", None), _Loader)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(self._mutant, spec.origin)
        return spec


def install(mutant: Mutant) -> Planter:
    """From now on this process imports the changed module; it must not have done so before."""
    assert mutant.module not in sys.modules, f"{mutant.module} was imported before it was changed"
    plant(mutant, mutant.path.read_text())  # a stale line is refused at once
    planter = Planter(mutant)
    sys.meta_path.insert(0, planter)
    return planter


def pytest_load_initial_conftests() -> None:
    """Before any test module is imported."""
    name = os.environ.get(VARIABLE)
    if name:
        from tests.mutants.catalogue import find

        install(find(name))
