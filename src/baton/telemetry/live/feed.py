"""What the page at /dashboard shows, as one value: workers, flows, clocks, the last requests."""

import msgspec
import numpy as np

from baton.core.snapshot import LoadSnapshot
from baton.nodes.fleet import WorkerView
from baton.nodes.router import Router
from baton.telemetry.live.history import TraceHistory
from baton.telemetry.live.story_metrics import StoryMetrics
from baton.telemetry.trace.bound import bound_of, explain
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.story import Story
from baton.telemetry.trace.vocabulary import ROUTER_PLACE

WINDOW_US = 60_000_000
NUM_SHOWN = 40


class WorkerCard(msgspec.Struct, frozen=True, kw_only=True):
    """One worker by its last heartbeat."""

    worker_id: str
    role: str
    epoch: int
    waiting: int = 0
    running: int = 0
    pending_tokens: int = 0
    inflight_nbytes: int = 0
    blocks: dict[str, int] = {}
    """used, cached, reserved, quarantined, free: together the pool."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """K/V from one worker to another within the window."""

    source: str
    destination: str
    num_requests: int
    nbytes: int


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """A clock over the window, in milliseconds; `target_ms` 0 is none."""

    num: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    target_ms: float = 0.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the list."""

    request_id: str
    state: str
    mode: str
    route: str
    age_s: float
    total_ms: float
    """To the first token, or to the end of who had none."""
    tpot_ms: float
    bound: str
    sentence: str
    spans: tuple[tuple[str, float, float], ...]
    """Phase, start and length, in milliseconds from the arrival."""


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a deployment."""

    model: str
    ready: str
    """Why nothing can be served, or ""."""
    open_requests: int
    waiting_requests: int
    requests_per_s: float
    workers: tuple[WorkerCard, ...]
    flows: tuple[Flow, ...]
    ttft: Clock
    tpot: Clock
    attainment: dict[str, dict[str, float]]
    requests: tuple[Row, ...]
    is_live: bool = True
    """False where nothing is kept of requests, because `telemetry.live` is."""


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One request with everything that is kept of it."""

    row: Row
    story: Story
    events: tuple[tuple[float, str, str, int, str], ...]
    """Milliseconds from its arrival, place, name, generation, data."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment says of itself at this moment, beside its stories."""

    model: str
    ready: str
    open_requests: int
    waiting_requests: int
    workers: tuple[WorkerCard, ...]


def make_feed(router: Router, history: TraceHistory, metrics: StoryMetrics, now_us: int) -> Feed:
    """What the page shows of the own engine's deployment."""
    standing = Standing(
        model=router.fleet.model.name if router.fleet.model else "",
        ready=router.missing(now_us),
        open_requests=len(router.records),
        waiting_requests=router.num_waiting,
        workers=tuple(sorted(map(_card, router.fleet), key=lambda card: card.worker_id)),
    )
    return fold_feed(standing, history, metrics, now_us)


def fold_feed(
    standing: Standing, history: TraceHistory, metrics: StoryMetrics, now_us: int
) -> Feed:
    """Fold the window; the price is that of a few hundred stories, whatever the rate."""
    last = history.last(1 << 20)
    recent = [one for one in last if now_us - one.ended_us <= WINDOW_US]
    span_s = min(WINDOW_US, now_us - recent[-1].ended_us + 1) / 1e6 if recent else 1.0
    ttft_slo_us, tpot_slo_us = metrics.targets_us
    return Feed(
        model=standing.model,
        ready=standing.ready,
        open_requests=standing.open_requests,
        waiting_requests=standing.waiting_requests,
        requests_per_s=len(recent) / max(1.0, span_s),
        workers=standing.workers,
        flows=_flows(recent),
        ttft=_clock([one.ttft_us for one in recent if one.ttft_us], ttft_slo_us),
        tpot=_clock([one.tpot_us for one in recent if one.tpot_us], tpot_slo_us),
        attainment=metrics.attainment(),
        requests=tuple(row_of(one, now_us) for one in last[:NUM_SHOWN]),
    )


def make_detail(story: Story, events: list[TraceEvent], now_us: int) -> Detail:
    """The page of one request."""
    start_us = story.tiling.start_us if story.tiling else events[0].at_us
    return Detail(
        row=row_of(story, now_us),
        story=story,
        events=tuple(
            (
                (event.at_us - start_us) / 1e3,
                event.place,
                event.name,
                event.generation,
                " ".join(f"{name}={value}" for name, value in event.data.items()),
            )
            for event in events
        ),
    )


def row_of(story: Story, now_us: int) -> Row:
    """One line of the list."""
    tiling = story.tiling
    start_us = tiling.start_us if tiling else 0
    route = story.decode if story.prefill == story.decode else f"{story.prefill} → {story.decode}"
    return Row(
        request_id=story.request_id,
        state=story.state,
        mode=story.mode,
        route=route,
        age_s=max(0, now_us - story.ended_us) / 1e6,
        total_ms=tiling.total_us / 1e3 if tiling else 0.0,
        tpot_ms=story.tpot_us / 1e3,
        bound=str(bound_of(story) or ""),
        sentence=explain(story),
        spans=tuple(
            (str(phase), (begin - start_us) / 1e3, (end - begin) / 1e3)
            for phase, begin, end in (tiling.spans() if tiling else ())
        ),
    )


def _card(view: WorkerView) -> WorkerCard:
    info, shot = view.info, view.snapshot
    if shot is None:
        return WorkerCard(worker_id=info.worker_id, role=str(info.role), epoch=info.epoch)
    return WorkerCard(
        worker_id=info.worker_id,
        role=str(info.role),
        epoch=info.epoch,
        waiting=shot.waiting,
        running=shot.running,
        pending_tokens=shot.pending_tokens,
        inflight_nbytes=shot.inflight_nbytes,
        blocks=_blocks(shot),
    )


def _blocks(shot: LoadSnapshot) -> dict[str, int]:
    named = {
        "reserved": shot.reserved_blocks,
        "quarantined": shot.quarantined_blocks,
        "cached": shot.cached_blocks,
        "free": shot.free_blocks,
    }
    return {"used": max(0, shot.total_blocks - sum(named.values())), **named}


def _flows(recent: list[Story]) -> tuple[Flow, ...]:
    sums: dict[tuple[str, str], list[int]] = {}
    for one in recent:
        if one.mode == "disaggregated" and one.prefill != ROUTER_PLACE:
            pair = sums.setdefault((one.prefill, one.decode), [0, 0])
            pair[0] += 1
            pair[1] += one.ledger.physical_nbytes
    return tuple(
        Flow(source=source, destination=destination, num_requests=num, nbytes=nbytes)
        for (source, destination), (num, nbytes) in sorted(sums.items())
    )


def _clock(values_us: list[int] | list[float], target_us: int) -> Clock:
    if not values_us:
        return Clock(target_ms=target_us / 1e3)
    p50, p99 = np.percentile(np.asarray(values_us, dtype=np.float64), [50, 99]) / 1e3
    return Clock(
        num=len(values_us), p50_ms=float(p50), p99_ms=float(p99), target_ms=target_us / 1e3
    )
