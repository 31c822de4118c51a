"""Everything that an idle deployment must not hold, by the workers' last snapshots."""

from baton.core.snapshot import LoadSnapshot
from baton.nodes.router import Router


def leftovers(router: Router) -> list[str]:
    """Name what is still held; empty when the deployment is idle and nothing leaked."""
    found = [f"router record {key}" for key in router.records]
    found += [f"router copy {copy.copy_id}" for copy in router.copies]
    for view in router.fleet:
        worker_id, shot = view.info.worker_id, view.snapshot
        if shot is None:
            found.append(f"{worker_id} has not sent a snapshot")
            continue
        found += [f"{worker_id}: {name} {value}" for name, value in _held(shot) if value]
        if view.prefill_tokens or view.decode_blocks:
            found.append(f"{worker_id}: the router's own account is not empty")
    return found


def _held(shot: LoadSnapshot) -> list[tuple[str, int]]:
    used = shot.total_blocks - shot.free_blocks - shot.cached_blocks - shot.quarantined_blocks
    return [
        ("used blocks", used),
        ("quarantined blocks", shot.quarantined_blocks),
        ("reserved blocks", shot.reserved_blocks),
        ("bytes in flight", shot.inflight_nbytes),
        ("source copies", shot.held_copies),
        ("waiting", shot.waiting),
        ("running", shot.running),
    ]
