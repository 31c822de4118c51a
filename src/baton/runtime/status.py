"""The live one-screen status of `baton serve`."""

from collections import deque

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from baton.config import BatonConfig
from baton.core.cache import Tier
from baton.core.snapshot import LoadSnapshot
from baton.nodes.cache_view import hit_ratio, num_asked, visible_ratio
from baton.runtime.clock import now_us
from baton.runtime.deployment import Deployment

_WINDOW = 20


class StatusScreen:
    """Renders workers, queues and throughput; call `render` a few times a second."""

    def __init__(self, config: BatonConfig, deployment: Deployment, url: str) -> None:
        self._config = config
        self._deployment = deployment
        self._url = url
        self._samples: deque[tuple[int, int]] = deque(maxlen=_WINDOW)

    def render(self) -> Group:
        """The screen now."""
        node = self._deployment.router.node
        table = Table(expand=True, box=None, pad_edge=False)
        for name in (
            "worker",
            "core",
            "epoch",
            "state",
            "waiting",
            "running",
            "K/V blocks",
            "cache",
        ):
            table.add_column(name)
        for slot in self._deployment.supervisor.workers:
            view = node.fleet.get(slot.worker_id)
            snapshot = view.snapshot if view else None
            cores = ",".join(map(str, slot.cores)) or "any"
            if view is None or snapshot is None:
                state = f"{slot.report.stage} {slot.report.fraction:.0%}"
                table.add_row(slot.worker_id, cores, str(slot.epoch), state, "", "", "", "")
                continue
            busy = snapshot.total_blocks - snapshot.free_blocks - snapshot.cached_blocks
            blocks = f"{busy} used, {snapshot.cached_blocks} cached, {snapshot.total_blocks} total"
            cache = shown_cache(snapshot)
            table.add_row(
                slot.worker_id, cores, str(slot.epoch), "up",
                str(snapshot.waiting), str(snapshot.running), blocks, cache,
            )  # fmt: skip
        return Group(
            Panel(
                table, title=f"baton  {self._config.model.name}  {self._url}", title_align="left"
            ),
            Text(self._line()),
            Text("Ctrl-C stops every process.", style="dim"),
        )

    def _line(self) -> str:
        counters = self._deployment.router.node.counters
        router = self._deployment.router.node
        self._samples.append((now_us(), counters["delivered_tokens"]))
        (first_us, first), (last_us, last) = self._samples[0], self._samples[-1]
        rate = (last - first) * 1e6 / (last_us - first_us) if last_us > first_us else 0.0
        ready = self._deployment.router.ready() or "ready"
        return (
            f"{ready} | open {len(router.records)} waiting {router.num_waiting} | "
            f"{rate:.1f} tokens/s | finished {counters['finished']} failed {counters['failed']} "
            f"cancelled {counters['cancelled']} | copies {len(router.copies)} under way, "
            f"{counters['copies_inserted']} inserted"
        )


def shown_cache(snapshot: LoadSnapshot) -> str:
    """Hit ratio of memory, and how full each lower tier is with the share of its own hits.

    Where prompts are handed over and not computed: what of them did not have to move.
    """
    is_asked, visible = num_asked(snapshot) > 0, visible_ratio(snapshot)
    if not is_asked and visible is None:
        return ""
    parts = []
    for load in snapshot.tiers:
        words = [] if load.tier is Tier.MEMORY else [str(load.tier)]
        words += [f"{hit_ratio(load.num_hits, snapshot):.0%} hits"] if is_asked else []
        if load.tier is not Tier.MEMORY:
            words[-1] += "," if is_asked else ""
            words.append(f"{load.num_named / load.num_blocks:.0%} full")
        elif visible is not None:
            words.append(f"{visible:.0%} visible")
        parts.append(" ".join(words))
    return "; ".join(parts)
