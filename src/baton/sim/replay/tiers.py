"""The lower tiers of a replayed worker: copies take time by a bandwidth, and nothing is copied."""

from collections.abc import Callable

from baton.core.cache import Tier
from baton.core.effects import CopyBlock, TierOrder
from baton.core.events import BlockCopied, Event
from baton.sim.replay.setup import TierSpeeds
from baton.sim.timeline import Timeline


class ReplayTiers:
    """One tier thread; a copy begins when the one before it has ended."""

    def __init__(
        self,
        speeds: TierSpeeds,
        block_nbytes: int,
        timeline: Timeline,
        feed: Callable[[Event], None],
    ) -> None:
        self._host_us = max(1, round(block_nbytes / speeds.host_bytes_per_us))
        self._disk_us = max(1, round(block_nbytes / speeds.disk_bytes_per_us))
        self._block_nbytes = block_nbytes
        self._timeline = timeline
        self._feed = feed
        self._free_us = 0

    def submit(self, order: TierOrder) -> None:
        """A copy ends after its time behind those before it; the others take none."""
        if not isinstance(order, CopyBlock):
            return
        is_slow = Tier.DISK in (order.source, order.target)
        duration_us = self._disk_us if is_slow else self._host_us
        self._free_us = max(self._free_us, self._timeline.now_us) + duration_us
        copied = BlockCopied(
            copy_id=order.copy_id, nbytes=self._block_nbytes, duration_us=duration_us
        )
        self._timeline.at(self._free_us, lambda: self._feed(copied))
