"""One tiny model for all engine tests, in a Baton home of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from engine_models import load

from baton.engine.loader import resolve_model


@pytest.fixture(scope="session")
def baton_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    torch.set_num_threads(1)
    home = tmp_path_factory.mktemp("home")
    patch = pytest.MonkeyPatch()
    patch.setenv("BATON_HOME", str(home))
    yield home
    patch.undo()


@pytest.fixture(scope="session")
def tiny(baton_home: Path) -> Path:
    return resolve_model("tiny")


@pytest.fixture(scope="session")
def tiny_engine(tiny: Path):
    return load(tiny)


@pytest.fixture
def engine(tiny_engine):
    """The tiny engine over a fresh pool full of poison."""
    tiny_engine.bind_pool(None, 96)
    tiny_engine.pool.tensor.fill_(float("nan"))
    return tiny_engine
