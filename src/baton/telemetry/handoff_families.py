"""Families of transfers, rights and routes that the nodes count themselves (0x0FF)."""

from baton.nodes.router import Router
from baton.telemetry.families import Sample, write_family

_TRANSFERS = {
    "attempted": "handoff_attempts",
    "completed": "handoffs",
    "aborted": "aborts",
    "timeout": "expired_leases",
    "move_failed": "transfer_errors",
    "validation_failed": "validation_failures",
    "corrupt": "corrupt_chunks",
}
"""Outcome of the family, and the worker's counter of it."""
_REJECTED = {"stale": "stale_publications", "duplicate": "duplicate_publications"}
_DENIED = "capability_denied_"


def write_handoffs(lines: list[str], router: Router) -> None:
    """Transfers by outcome, rejected publications, denials, and what is under way of old routes."""
    transfers: list[Sample] = []
    rejected: list[Sample] = []
    denied: list[Sample] = []
    preempted: list[Sample] = []
    leases: list[Sample] = []
    for view in router.fleet:
        if view.snapshot is None:
            continue
        worker, counters = {"worker": view.info.worker_id}, view.snapshot.counters
        transfers += _samples(worker, "outcome", _TRANSFERS, counters)
        rejected += _samples(worker, "reason", _REJECTED, counters)
        denied += [
            ({**worker, "reason": name.removeprefix(_DENIED)}, float(count))
            for name, count in sorted(counters.items())
            if name.startswith(_DENIED)
        ]
        leases += [
            ({**worker, "side": "source"}, float(view.snapshot.source_leases)),
            ({**worker, "side": "destination"}, float(view.snapshot.destination_leases)),
        ]
        preempted.append((worker, float(counters.get("preemptions", 0))))
    for name, text, samples in (
        ("baton_kv_transfers_total", "Handoffs by outcome, at their destination.", transfers),
        ("baton_publications_rejected_total", "Publications that were refused.", rejected),
        ("baton_capability_denials_total", "Refused transfer rights, by reason.", denied),
        ("vllm:num_preemptions_total", "Sequences that lost their blocks.", preempted),
    ):
        write_family(lines, name, "counter", text, samples)
    text = "Transfers under a lease that nobody has ended yet."
    write_family(lines, "baton_open_leases", "gauge", text, leases)
    _write_routes(lines, router)


def _samples(
    worker: dict[str, str], label: str, names: dict[str, str], counters: dict[str, int]
) -> list[Sample]:
    return [
        ({**worker, label: value}, float(counters.get(name, 0))) for value, name in names.items()
    ]


def _write_routes(lines: list[str], router: Router) -> None:
    context = router.context
    epochs: list[Sample] = [({}, float(context.rights.route_epoch))]
    write_family(lines, "baton_route_epoch", "gauge", "The present route epoch.", epochs)
    held = [
        ({"worker": view.info.worker_id}, float(len(view.decode_blocks))) for view in router.fleet
    ]
    text = "Requests that are routed to a worker's decode side."
    write_family(lines, "baton_worker_routed_requests", "gauge", text, held)
    up: list[Sample] = [
        ({"worker": v.info.worker_id, "role": str(v.info.role)}, float(v.info.epoch))
        for v in router.fleet
    ]
    text = "Lives of each worker: the epoch of the present one."
    write_family(lines, "baton_worker_epoch", "gauge", text, up)
    credit: list[Sample] = [({}, float(context.transfer.credit_nbytes))]
    text = "Byte credit of one handoff: what its source may have in flight."
    write_family(lines, "baton_transfer_credit_bytes", "gauge", text, credit)
