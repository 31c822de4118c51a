"""What lives where, as tables for a person."""

from collections.abc import Iterator

from rich.console import JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from baton.core.cache import Tier
from baton.core.units import shown_nbytes
from baton.nodes.cache_view import CacheView, HotPrefix, TierView, WorkerCache


def cache_tables(view: CacheView) -> Iterator[RenderableType]:
    """The whole pool, from its settings to what is on its way."""
    yield Text(
        f"milestone {view.milestone}, eviction {view.eviction}, generation {view.generation}"
    )
    yield _tiers(view)
    index = view.index
    yield Text(
        f"index: {index.num_blocks:,} blocks, {index.num_claims:,} claims, "
        f"about {shown_nbytes(index.nbytes)}"
    )
    yield _hot(view.hot) if view.hot else Text("no prefix was asked for more than once lately")
    if view.copies:
        yield _copies(view)
    yield Text(_totals(view))


def _table(title: str, *columns: str) -> Table:
    """Words to the left, numbers to the right: a column whose name begins with # is a number."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        is_number = column.startswith("#")
        justify: JustifyMethod = "right" if is_number else "left"
        table.add_column(column.removeprefix("#"), justify=justify, no_wrap=column != "owners")
    return table


def _tiers(view: CacheView) -> Table:
    table = _table(
        "Tiers", "worker", "tier", "#named", "#size", "#reclaimable",
        "#hits", "#of asked", "#visible", "#reload", "#claimed",
    )  # fmt: skip
    for worker in view.workers:
        for tier in worker.tiers:
            table.add_row(*_tier_row(worker, tier))
        if not worker.tiers:
            table.add_row(worker.worker_id, "no heartbeat yet")
    return table


def _tier_row(worker: WorkerCache, tier: TierView) -> tuple[str, ...]:
    is_first = tier.tier is Tier.MEMORY
    return (
        worker.worker_id if is_first else "",
        tier.tier,
        f"{tier.num_named:,} of {tier.num_blocks:,}",
        shown_nbytes(tier.capacity_nbytes),
        f"{tier.num_reclaimable:,} ({shown_nbytes(tier.reclaimable_nbytes)})",
        f"{tier.num_hits:,}",
        f"{tier.hit_ratio:.1%} of {worker.num_asked:,}" if worker.num_asked else "-",
        _visible(worker) if is_first else "",
        f"{tier.bytes_per_us:,.0f} MB/s" if tier.bytes_per_us else "-",
        f"{tier.num_claimed:,}",
    )


def _visible(worker: WorkerCache) -> str:
    """What of the prompts that were handed over did not have to move."""
    if not worker.num_handed:
        return "-"
    return f"{worker.num_visible / worker.num_handed:.1%} of {worker.num_handed:,}"


def _hot(prefixes: tuple[HotPrefix, ...]) -> Table:
    table = _table("Hottest prefixes", "block name", "#recent hits", "#tokens", "owners")
    for prefix in prefixes:
        owners = ", ".join(
            worker if tier is Tier.MEMORY else f"{worker} ({tier})"
            for worker, tier in prefix.owners
        )
        table.add_row(
            prefix.name, f"{prefix.hits:.1f}", f"{prefix.num_tokens:,}", owners or "nobody now"
        )
    return table


def _copies(view: CacheView) -> Table:
    table = _table("Copies under way", "motive", "from", "to", "#tokens", "state", "#age ms")
    for copy in view.copies:
        table.add_row(
            copy.motive, copy.source, copy.destination,
            f"{copy.num_tokens:,}", copy.state, f"{copy.age_us / 1000:,.0f}",
        )  # fmt: skip
    return table


def _totals(view: CacheView) -> str:
    totals = view.totals
    return (
        f"copies so far: fetch {totals['copies_fetch']}, return {totals['copies_return']}, "
        f"replicate {totals['copies_replicate']}; inserted {totals['copies_inserted']}, "
        f"given up {totals['copies_given_up']}; {shown_nbytes(totals['copied_nbytes'])} copied; "
        f"returns priced "
        f"{totals['returns_paid'] + totals['returns_declined']}, of which "
        f"{totals['returns_paid']} pay; cleared {totals['cache_clears']} times"
    )
