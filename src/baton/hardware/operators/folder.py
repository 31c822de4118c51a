"""Where the tables of AIConfigurator lie in a data folder, and which stand in for a system."""

import math
from functools import lru_cache
from pathlib import Path

from baton.errors import ConfigError
from baton.hardware.operators.columns import Columns, cached_columns
from baton.hardware.system import System, find_system

FOLDER = "aiconfigurator"
_NEEDED = ("gemm", "context_attention", "generation_attention")


class TableFolder:
    """The measured tables of one system."""

    def __init__(self, path: Path, system: System) -> None:
        self.path = path
        self.system = system

    def find(self, name: str, prefix: str) -> Path | None:
        """`<prefix>-*/<name>_perf.csv.gz` or its plain form, of the newest version there is."""
        for folder in sorted(self.path.glob(f"{prefix}-*"), reverse=True):
            for suffix in (".csv.gz", ".csv"):
                path = folder / f"{name}_perf{suffix}"
                if path.exists():
                    return path
        return None

    def columns(self, name: str, prefix: str = "vllm") -> Columns:
        """One table. Raises ConfigError if it is not there."""
        path = self.find(name, prefix)
        if path is None:
            raise ConfigError(f"{self.path}: no {prefix}-*/{name}_perf.csv.gz")
        return cached_columns(path)


def table_systems(data: Path) -> list[str]:
    """Systems whose tables lie in a data folder."""
    root = data / FOLDER
    return sorted(
        one.name
        for one in (root.iterdir() if root.is_dir() else ())
        if one.is_dir() and all(any(one.glob(f"vllm-*/{name}_perf.csv*")) for name in _NEEDED)
    )


def nearest_tables(data: Path, system: System) -> TableFolder:
    """Those of the system itself, else of the one whose peaks are nearest."""
    names = table_systems(data)
    if not names:
        raise ConfigError(
            f"{data}: no operator tables; name a folder that holds {FOLDER}/<system>/vllm-*/ "
            "with --data or BATON_DATA"
        )
    best = min(names, key=lambda name: (_distance(system, _named(name)), name))
    return _folder(data, best)


@lru_cache(maxsize=32)
def _folder(data: Path, name: str) -> TableFolder:
    return TableFolder(data / FOLDER / name, _named(name))


def _named(name: str) -> System:
    return find_system(name)


def _distance(one: System, other: System) -> float:
    if one.name == other.name:
        return -1.0
    peak = math.log(one.flops["bfloat16"] / other.flops["bfloat16"])
    memory = math.log(one.memory_bytes_per_s / other.memory_bytes_per_s)
    missing = sum(1 for key in one.flops if key not in other.flops)
    return abs(peak) + abs(memory) + missing
