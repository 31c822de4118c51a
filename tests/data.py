"""Published data sets that tests compare with; they are not part of this repository."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("BATON_DATA", Path(__file__).parents[2] / "shared" / "data"))


def data_file(name: str) -> Path:
    """A file under $BATON_DATA; without it the test is skipped and says what it lacks."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there: set BATON_DATA to a folder that holds {name}")
    return path
