"""`python -m baton.bench.ray`: two nodes on this machine, and a deployment across them.

Exit 1 when something was not as it must be, 2 where it cannot run here.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from baton.bench.network.namespaces import Namespace, cable
from baton.bench.ray.demo import Demo
from baton.errors import BatonError, ConfigError
from baton.runtime.dataplane.nixl import require_nixl


def main() -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m baton.bench.ray", description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--inside", nargs=4, metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if options.inside:
            return _inside(options.inside, options.model)
        require_nixl("the demonstration")
        if importlib.util.find_spec("ray") is None:
            raise ConfigError("Ray is not installed; run `pip install 'kvbaton[ray]'`")
        with cable() as (head, other):
            names = [head.name, head.address, other.name, other.address]
            enter = ["ip", "netns", "exec", head.name, sys.executable, "-m", "baton.bench.ray"]
            return subprocess.run([*enter, "--model", options.model, "--inside", *names]).returncode
    except BatonError as error:
        print(f"baton: {error}", file=sys.stderr)
        return 2


def _inside(names: list[str], model: str) -> int:
    folder = Path(tempfile.mkdtemp(prefix="baton-ray-demo-"))
    print(f"logs in {folder}", flush=True)
    demo = Demo(Namespace(*names[:2]), Namespace(*names[2:]), model, folder)
    demo.run()
    print("all as it must be" if not demo.failures else f"failed: {'; '.join(demo.failures)}")
    return 1 if demo.failures else 0


if __name__ == "__main__":
    sys.exit(main())
