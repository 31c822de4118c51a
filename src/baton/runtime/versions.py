"""Releases of what a process runs on, read from the metadata of installed distributions."""

from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

COMPUTING = ("torch", "transformers", "numpy", "numba")
"""Another release of one of these may compute other bits."""
CARRYING = ("kvbaton", "msgspec", "pyzmq", "xxhash", "nixl-cu12", "ray")
"""What carries messages and bytes; the schema digest refuses what cannot understand each other."""


@cache
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def nixl_release() -> str:
    """Of the NIXL that is installed here, under whichever name; "" without one."""
    return _version("nixl") or _version("nixl-cu12") or _version("nixl-cu13")


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Of the named distributions those that are installed here."""
    return {name: found for name in names if (found := _version(name))}
