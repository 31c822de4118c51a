"""Which plane a configuration gets, and what is said where it cannot be had."""

import pytest

from baton.config import BatonConfig, TransferConfig
from baton.errors import ConfigError, RemoteProtocolError
from baton.runtime.dataplane import Arena, ShmDataPlane
from baton.runtime.dataplane.choice import choose_plane, create_arena, settle_plane
from baton.runtime.dataplane.nixl import library

from .test_nixl_notes import SENDER


def _config(plane: str) -> BatonConfig:
    return BatonConfig(transfer=TransferConfig(data_plane=plane))


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(library, "_BUILDS", ("no_such_build_of_nixl",))


def test_a_missing_nixl_is_named_with_its_extra(nothing_installed):
    with pytest.raises(ConfigError, match=r"kvbaton\[nixl\]"):
        settle_plane(_config("nixl"))
    assert settle_plane(_config("auto")).transfer.data_plane == "shm"


def test_auto_takes_what_is_installed(monkeypatch):
    monkeypatch.setattr(library, "_BUILDS", ("json",))
    assert settle_plane(_config("auto")).transfer.data_plane == "nixl"
    assert settle_plane(_config("shm")).transfer.data_plane == "shm"


def test_shared_memory_stays_the_default():
    plane = choose_plane(BatonConfig())
    assert type(plane) is ShmDataPlane
    plane.close()
    with pytest.raises(ConfigError, match="settled"):
        choose_plane(_config("auto"))


def test_a_region_of_another_plane_is_refused_by_name():
    arena, plane = Arena.create("w", 4096), ShmDataPlane()
    plane.register(arena)
    with pytest.raises(RemoteProtocolError, match=r"through nixl.*transfer\.data_plane"):
        plane.connect(SENDER)
    plane.close()
    arena.close()


def test_private_memory_has_no_name_that_could_be_mapped():
    arena = create_arena(_config("nixl"), "w", 5000, 3)
    assert (arena.nbytes, arena.descriptor.name, arena.descriptor.epoch) == (8192, "", 3)
    assert not arena.buffer.any()
    with pytest.raises(RemoteProtocolError):
        Arena.attach(arena.descriptor)
    arena.close()
