"""The NIXL library: whether it is here, and the settings that it takes from the environment.

The `nixl` package is a chooser between two builds, of which each holds everything, so either build
alone will do.
"""

import contextlib
import importlib
import importlib.util
import os
import threading
from collections.abc import Iterator
from types import ModuleType

from baton.errors import ConfigError
from baton.runtime.dataplane.nixl.interface import interface_of

_BUILDS = ("nixl", "nixl_cu12", "nixl_cu13")
_LOCK = threading.Lock()
_INFINIBAND = "/sys/class/infiniband"


def is_installed() -> bool:
    """Whether some build of NIXL can be imported."""
    return _find() is not None


def require_nixl(asked_by: str, otherwise: str = "transfer.data_plane=shm") -> None:
    """Raise ConfigError where NIXL is missing: `asked_by` is the setting that wants it, and
    `otherwise` the one that does not."""
    if not is_installed():
        raise ConfigError(
            f"{asked_by} needs NIXL, which is not installed; run `pip install 'kvbaton[nixl]'`, or "
            f"use {otherwise}"
        )


@contextlib.contextmanager
def loaded(log_path: str, *, host: str) -> Iterator[ModuleType]:
    """NIXL, for opening agents whose transport is confined and tells its choices to `log_path`.

    What the operator has set in the environment stays. Its sockets are kept off every interface
    but that of `host`, an address of this host. Beside an RDMA card only loopback is confined so:
    the name of a network interface would shut the card out. The settings hold only within:
    children must not inherit them. Raises ConfigError where `host` is no address of this host.
    """
    settings = {"UCX_PROTO_INFO": "y", "UCX_LOG_FILE": log_path, "NIXL_LOG_LEVEL": "WARN"}
    has_rdma = os.path.exists(_INFINIBAND)
    device = interface_of(host)
    if device == "lo" or not has_rdma:
        settings["UCX_NET_DEVICES"] = device
    if not has_rdma:
        # Where Debian's providers are installed these modules crash the process at its exit.
        settings["UCX_MODULES"] = "^ib"
    build = _find()
    assert build is not None, "require_nixl comes first"
    with _LOCK:
        ours = {name: value for name, value in settings.items() if name not in os.environ}
        os.environ.update(ours)
        try:
            yield importlib.import_module(f"{build}._api")
        finally:
            for name in ours:
                os.environ.pop(name, None)


def _find() -> str | None:
    return next((name for name in _BUILDS if _is_package(name)), None)


def _is_package(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None  # any folder of that name has a spec
