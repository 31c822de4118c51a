"""Releases of what a process runs on, read from the metadata of installed distributions."""

from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from baton.config import BatonConfig

COMPUTING = ("torch", "transformers", "numpy", "numba")
"""Another release of one of these may compute other bits."""
CARRYING = ("kvbaton", "msgspec", "pyzmq", "xxhash")
"""What carries the messages of every deployment."""
_OF_PLANES = {"nixl": ("nixl-cu12",)}


def carrying(config: BatonConfig) -> tuple[str, ...]:
    """What carries messages and bytes of this deployment; what only lies beside it is not named.

    The schema digest refuses what cannot understand each other.
    """
    of_plane = _OF_PLANES.get(config.transfer.data_plane, ())
    of_cluster = () if config.cluster.launcher == "local" else ("ray",)
    return (*CARRYING, *of_plane, *of_cluster)


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
