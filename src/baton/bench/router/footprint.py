"""`python -m baton.bench.router.footprint`: the index alone in a process, weighed."""

import gc
import sys
from pathlib import Path
from subprocess import run

import msgspec

from baton.bench.router.load import Load, Shape
from baton.bench.router.ours import fill_index
from baton.errors import BatonError

_PAGE_NBYTES = 4096


def weigh(shape: Shape) -> float:
    """Resident bytes per block of a fresh process that holds nothing else. Raises BatonError."""
    command = [sys.executable, "-m", "baton.bench.router.footprint"]
    done = run(command, input=msgspec.json.encode(shape), capture_output=True, check=False)
    if done.returncode:
        raise BatonError(f"footprint: the child ended with {done.returncode}: {done.stderr!r}")
    return float(done.stdout)


def main() -> None:
    """Read a shape on stdin, print resident bytes per block."""
    load = Load(msgspec.json.decode(sys.stdin.buffer.read(), type=Shape))
    gc.collect()
    before = _resident_nbytes()
    index, _ = fill_index(load)
    load.prompts.clear()
    gc.collect()
    print((_resident_nbytes() - before) / index.num_blocks)


def _resident_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_NBYTES


if __name__ == "__main__":
    main()
