"""What a deployment takes from the system: open files and shared segments of its processes."""

import os

from baton.nodes.router import Router
from baton.runtime.dataplane.segments import SHM_DIR


def footprint(router: Router) -> dict[str, int]:
    """Counts by process, this one as the gateway. Raises OSError when a process just ended."""
    pids = {view.info.worker_id: view.info.pid for view in router.fleet}
    counts = {}
    for name, pid in {**pids, "gateway": os.getpid()}.items():
        counts[f"{name} files"] = len(os.listdir(f"/proc/{pid}/fd"))
        counts[f"{name} segments"] = len(list(SHM_DIR.glob(f"baton-{pid}-*")))
    return counts
