"""Whether a worker may be removed, and what it still has to do before it is."""

from baton.core.ids import Role
from baton.nodes.router import Router


def drain_refusal(router: Router, worker_id: str, absent: Role | None = None) -> str:
    """Why this worker cannot be drained: it is not here, or nobody else could serve; or "".

    `absent` is the role of one that has no life now and would get another one.
    """
    view = router.fleet.get(worker_id)
    role = view.info.role if view is not None else absent
    if role is None:
        known = ", ".join(sorted(other.info.worker_id for other in router.fleet))
        return f"worker {worker_id!r} is not up; the live ones are {known or 'none'}"
    if view is not None and view.draining:
        return f"worker {worker_id} is drained already"
    rest = {other.info.role for other in router.fleet if other is not view and not other.draining}
    if Role.MIXED in rest or {Role.PREFILL, Role.DECODE} <= rest:
        return ""
    return (
        f"{worker_id} is the last {role} worker that takes requests, so nothing could be "
        "served without it; start another one first"
    )


def outstanding(router: Router, worker_id: str, epoch: int) -> list[str]:
    """What ties that life of a worker to open requests; empty once it can go without a loss."""
    view = router.fleet.get(worker_id, epoch)
    if view is None:
        return []
    found = [
        f"request {record.request.request_id}"
        for record in router.records.values()
        if record.fence is not None
        and (worker_id, epoch)
        in (
            (record.fence.source_id, record.fence.source_epoch),
            (record.fence.destination_id, record.fence.destination_epoch),
        )
    ]
    shot = view.snapshot
    if shot is not None:
        held = {
            "source copies": shot.held_copies,
            "waiting": shot.waiting,
            "running": shot.running,
            "bytes in flight": shot.inflight_nbytes,
        }
        found += [f"{name} {value}" for name, value in held.items() if value]
    return found
