"""Prometheus text of the router and its workers; names are defined in docs/metrics.md."""

from collections.abc import Iterable, Mapping

from baton.core.ids import Mode
from baton.core.topology import Topology
from baton.nodes.cache_view import num_asked
from baton.nodes.history_copy import Motive
from baton.nodes.router import Router
from baton.telemetry.families import Sample, write_family
from baton.telemetry.handoff_families import write_handoffs

_WORKER_GAUGES = {
    "waiting": ("baton_worker_waiting_requests", "Sequences waiting for prefill rows"),
    "running": ("baton_worker_running_requests", "Sequences decoding"),
    "pending_tokens": ("baton_worker_pending_prefill_tokens", "Prompt rows not computed yet"),
    "inflight_nbytes": ("baton_transfer_inflight_bytes", "Byte credit taken and not returned"),
    "held_copies": ("baton_source_copies", "Source copies held or computing"),
}
_LEDGERS = (
    ("handoff", "baton_kv_transfer_bytes_total", "Bytes of published handoffs"),
    ("copy", "baton_cache_copied_bytes_total", "Bytes of inserted copies of history"),
)
_BLOCK_STATES = ("free", "cached", "quarantined", "reserved", "total")


def render_metrics(router: Router, host: Mapping[str, int] | None = None) -> bytes:
    """Everything the router and its `host` count, in the text exposition format."""
    lines: list[str] = []
    write_family(lines, "baton_router_waiting_requests", "gauge", "Requests without a route",
            [({}, router.num_waiting)])  # fmt: skip
    write_family(lines, "baton_router_open_requests", "gauge", "Requests that have not ended",
            [({}, len(router.records))])  # fmt: skip
    _routes(lines, router)
    outcomes = [({"event": name}, count) for name, count in sorted(router.counters.items())]
    outcomes += [({"event": name}, count) for name, count in (host or {}).items()]
    _events(lines, "baton_router_events_total", "Named outcomes at the router", outcomes)
    _workers(lines, router)
    write_handoffs(lines, router)
    _cache(lines, router)
    return ("\n".join(lines) + "\n").encode()


def _routes(lines: list[str], router: Router) -> None:
    counters = router.counters
    policy = router.context.config.policy
    modes: list[Sample] = [
        ({"policy": policy, "topology": str(topology), "result": str(mode)}, counters[name])
        for topology in Topology
        for mode in Mode
        if counters[name := f"route_{topology}_{mode}"]
    ]
    write_family(
        lines, "baton_pd_route_total", "counter", "Published routes by mode and distance", modes
    )
    falls = [
        ({"kind": name.removeprefix("fallback_")}, count)
        for name, count in sorted(counters.items())
        if name.startswith("fallback_")
    ]
    write_family(lines, "baton_fallback_total", "counter", "What followed a failed attempt", falls)


def _workers(lines: list[str], router: Router) -> None:
    views = [(view, view.snapshot) for view in router.fleet if view.snapshot is not None]
    for field, (name, text) in _WORKER_GAUGES.items():
        samples = [({"worker": v.info.worker_id}, float(getattr(s, field))) for v, s in views if s]
        write_family(lines, name, "gauge", text, samples)
    blocks: list[Sample] = []
    usage: list[Sample] = []
    totals: list[Sample] = []
    for view, snapshot in views:
        assert snapshot is not None
        worker = {"worker": view.info.worker_id}
        for state in _BLOCK_STATES:
            blocks.append(({**worker, "state": state}, getattr(snapshot, f"{state}_blocks")))
        busy = snapshot.total_blocks - snapshot.free_blocks - snapshot.cached_blocks
        usage.append((worker, busy / snapshot.total_blocks))
        totals += [({**worker, "event": k}, n) for k, n in sorted(snapshot.counters.items())]
    write_family(lines, "baton_kv_blocks", "gauge", "K/V blocks by state", blocks)
    write_family(lines, "vllm:kv_cache_usage_perc", "gauge", "Referenced share of the pool", usage)
    _events(lines, "baton_worker_events_total", "Named outcomes at the workers", totals)
    for kind, name, text in _LEDGERS:
        write_family(lines, name, "counter", text, _booked(totals, kind))


def _booked(totals: Iterable[Sample], kind: str) -> list[Sample]:
    """The byte account of handoffs, or of copies, by ledger."""
    return [
        ({"worker": labels["worker"], "ledger": parts[1]}, count)
        for labels, count in totals
        if len(parts := labels["event"].split("_")) == 3 and parts[::2] == [kind, "bytes"]
    ]


def _cache(lines: list[str], router: Router) -> None:
    counters, index = router.counters, router.context.holdings
    for name, text, value in (
        ("baton_cache_generation", "Raised by each clear", router.generations.current),
        ("baton_cache_indexed_blocks", "Blocks in the router's index", index.num_blocks),
        ("baton_cache_claims", "Owners and tiers of all blocks there", index.num_claims),
        ("baton_cache_index_bytes", "Memory of the index, an estimate", index.nbytes),
        ("baton_cache_copies_open", "Copies of history under way", len(router.copies)),
    ):
        write_family(lines, name, "gauge", text, [({}, value)])
    started = [({"motive": str(motive)}, counters[f"copies_{motive}"]) for motive in Motive]
    write_family(lines, "baton_cache_copies_total", "counter", "Copies of history begun", started)
    ended = [({"outcome": end}, counters[f"copies_{end}"]) for end in ("inserted", "given_up")]
    write_family(lines, "baton_cache_copies_ended_total", "counter", "Of those, ended", ended)
    _tiers(lines, router)


def _tiers(lines: list[str], router: Router) -> None:
    blocks: list[Sample] = []
    hits: list[Sample] = []
    asked: list[Sample] = []
    for view in router.fleet:
        worker, snapshot = {"worker": view.info.worker_id}, view.snapshot
        if snapshot is None:
            continue
        asked.append((worker, num_asked(snapshot)))
        for load in snapshot.tiers:
            tier = {**worker, "tier": str(load.tier)}
            hits.append((tier, load.num_hits))
            blocks += [
                ({**tier, "state": "capacity"}, load.num_blocks),
                ({**tier, "state": "named"}, load.num_named),
                ({**tier, "state": "reclaimable"}, load.num_reclaimable),
            ]
    write_family(lines, "baton_cache_tier_blocks", "gauge", "Blocks of a tier by state", blocks)
    write_family(lines, "baton_cache_tier_hits_total", "counter", "Blocks that prompts found", hits)
    write_family(lines, "baton_cache_asked_blocks_total", "counter", "Blocks looked for", asked)


def _events(lines: list[str], name: str, text: str, samples: Iterable[Sample]) -> None:
    write_family(lines, name, "counter", text, samples)
