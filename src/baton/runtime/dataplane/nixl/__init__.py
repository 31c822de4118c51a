"""The data plane over NIXL: memory of the host where it can be reached, the network elsewhere."""

from baton.runtime.dataplane.nixl.library import is_installed, require_nixl
from baton.runtime.dataplane.nixl.nixl_plane import NixlDataPlane

__all__ = ["NixlDataPlane", "is_installed", "require_nixl"]
