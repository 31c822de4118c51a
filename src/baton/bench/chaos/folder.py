"""Where a chaos run keeps its logs, traces and gates, and what killed runs have left there."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "baton-chaos-"


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder that is named after this process and is gone on leaving."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as name:
        yield Path(name)


def sweep() -> None:
    """Remove the folders of runs whose process is dead; a killed one cannot do it."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        dead = pid.isdigit() and not Path(f"/proc/{pid}").exists()
        if dead and path.is_dir() and path.stat().st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)
