"""What lives where: the distributed K/V pool as an operator sees it, and never a token of it."""

from collections.abc import Iterator

import msgspec

from baton.core.cache import Tier
from baton.core.ids import Role
from baton.core.snapshot import LoadSnapshot
from baton.nodes.fleet import WorkerView
from baton.nodes.history_copy import HistoryCopy, Motive
from baton.nodes.router import Router

MAX_HOT = 10
_NAME_CHARS = 16
"""Of the hex of a block's name: enough to tell prefixes apart by eye."""


class TierView(msgspec.Struct, frozen=True, kw_only=True):
    """One tier of one worker, from its last heartbeat."""

    tier: Tier
    num_blocks: int
    capacity_nbytes: int
    num_named: int
    """Blocks of history in it."""
    num_reclaimable: int
    """Of those, what could be given up now."""
    reclaimable_nbytes: int
    num_hits: int
    hit_ratio: float
    """Of the blocks that prompts which are computed at this worker asked for. A block that was
    brought up from a lower tier is a hit there and then in memory."""
    bytes_per_us: float
    """Measured rate of bringing blocks up from here; 0 until measured."""
    num_claimed: int
    """Blocks that the router's index claims to be here."""


class WorkerCache(msgspec.Struct, frozen=True, kw_only=True):
    """One live worker's part of the pool."""

    worker_id: str
    role: Role
    epoch: int
    generation: int
    block_size: int
    bytes_per_block: int
    num_asked: int
    """Blocks that prompts which are computed here looked for, so far."""
    num_handed: int
    """Whole blocks of prompts that were handed to this worker, so far."""
    num_visible: int
    """Of those, what did not have to move, because it was in memory here already."""
    tiers: tuple[TierView, ...]


class IndexView(msgspec.Struct, frozen=True, kw_only=True):
    """The router's index of who holds what."""

    num_blocks: int
    num_claims: int
    nbytes: int
    """Memory that it takes, an estimate."""


class HotPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """A prefix that many prompts begin with."""

    name: str
    """The beginning of its last block's name, in hex."""
    hits: float
    """Recent ones; half are forgotten every half-life."""
    num_tokens: int
    owners: tuple[tuple[str, Tier], ...]


class CopyView(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of history between workers that is under way."""

    motive: Motive
    source: str
    destination: str
    num_tokens: int
    state: str
    age_us: int


class CacheView(msgspec.Struct, frozen=True, kw_only=True):
    """The whole pool at one moment."""

    milestone: str
    eviction: str
    generation: int
    workers: tuple[WorkerCache, ...]
    index: IndexView
    hot: tuple[HotPrefix, ...]
    copies: tuple[CopyView, ...]
    totals: dict[str, int]
    """Outcomes so far: copies by motive and by end, returns by price, clears. `copied_nbytes` is
    payload that the present lives of the workers took in by copies, as their heartbeats say."""


_TOTALS = (
    *(f"copies_{motive}" for motive in Motive),
    "copies_inserted",
    "copies_given_up",
    "copies_denied",
    "copies_refused",
    "returns_paid",
    "returns_declined",
    "cache_clears",
)
_COPIED = "copy_logical_bytes"


def view_cache(router: Router, now_us: int) -> CacheView:
    """Everything that the router knows of the pool."""
    context = router.context
    index = context.holdings
    return CacheView(
        milestone=context.cache.milestone,
        eviction=context.cache.eviction,
        generation=router.generations.current,
        workers=tuple(_worker(router, view) for view in sorted(context.fleet, key=_standing)),
        index=IndexView(
            num_blocks=index.num_blocks, num_claims=index.num_claims, nbytes=index.nbytes
        ),
        hot=tuple(_hot(router, now_us)),
        copies=tuple(_copy(copy, now_us) for copy in router.copies),
        totals={name: context.counters[name] for name in _TOTALS}
        | {"copied_nbytes": sum(_counted(view.snapshot, _COPIED) for view in context.fleet)},
    )


def _hot(router: Router, now_us: int) -> Iterator[HotPrefix]:
    index, layout = router.context.holdings, router.fleet.source_layout
    for name, hits, num_blocks in router.histories.hot.hottest(MAX_HOT, now_us):
        places = index.places(name)
        yield HotPrefix(
            name=name.hex()[:_NAME_CHARS],
            hits=round(hits, 2),
            num_tokens=num_blocks * (layout.block_size if layout else 0),
            owners=tuple((place.owner, place.tier) for place in places),
        )


def hit_ratio(num_hits: int, snapshot: LoadSnapshot) -> float:
    """Hits of a tier over the blocks that were asked for at its worker; 0 before the first."""
    asked = num_asked(snapshot)
    return num_hits / asked if asked else 0.0


def visible_ratio(snapshot: LoadSnapshot) -> float | None:
    """Share of what was handed to a worker that was there already; None before the first."""
    handed = _counted(snapshot, "visible_blocks_asked")
    return _counted(snapshot, "visible_blocks_found") / handed if handed else None


def num_asked(snapshot: LoadSnapshot) -> int:
    """Blocks that prompts which are computed at a worker looked for, so far."""
    return _counted(snapshot, "prefix_blocks_asked")


def _counted(snapshot: LoadSnapshot | None, name: str) -> int:
    return snapshot.counters.get(name, 0) if snapshot else 0


def _standing(view: WorkerView) -> tuple[int, int, str]:
    """By role, then by number: the order of the names' text would put 10 before 2."""
    name = view.info.worker_id
    return list(Role).index(view.info.role), len(name), name


def _worker(router: Router, view: WorkerView) -> WorkerCache:
    info, snapshot = view.info, view.snapshot
    layout = info.model.layout
    claimed = router.context.holdings.holdings(info.worker_id)
    return WorkerCache(
        worker_id=info.worker_id,
        role=info.role,
        epoch=info.epoch,
        generation=snapshot.cache_generation if snapshot else 0,
        block_size=layout.block_size,
        bytes_per_block=layout.bytes_per_block,
        num_asked=_counted(snapshot, "prefix_blocks_asked"),
        num_handed=_counted(snapshot, "visible_blocks_asked"),
        num_visible=_counted(snapshot, "visible_blocks_found"),
        tiers=tuple(
            TierView(
                tier=load.tier,
                num_blocks=load.num_blocks,
                capacity_nbytes=load.num_blocks * layout.bytes_per_block,
                num_named=load.num_named,
                num_reclaimable=load.num_reclaimable,
                reclaimable_nbytes=load.num_reclaimable * layout.bytes_per_block,
                num_hits=load.num_hits,
                hit_ratio=hit_ratio(load.num_hits, snapshot),
                bytes_per_us=load.bytes_per_us,
                num_claimed=claimed[load.tier],
            )
            for load in snapshot.tiers
        )
        if snapshot
        else (),
    )


def _copy(copy: HistoryCopy, now_us: int) -> CopyView:
    return CopyView(
        motive=copy.motive,
        source=copy.fence.source_id,
        destination=copy.fence.destination_id,
        num_tokens=copy.num_tokens,
        state=copy.state,
        age_us=now_us - copy.started_us,
    )
