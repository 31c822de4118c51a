"""Every test that asks for a `driver` runs with each way in which blocks reach their files."""

import pytest

from baton.runtime.dataplane.nixl import is_installed

NIXL = pytest.param(
    "nixl",
    marks=pytest.mark.skipif(
        not is_installed(), reason="NIXL is not installed: pip install 'kvbaton[nixl]'"
    ),
)


@pytest.fixture(params=["files", NIXL])
def driver(request):
    """A value of `cache.disk_driver`."""
    return request.param
