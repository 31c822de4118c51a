"""Which hot prefix is copied to one more worker: a slow loop beside the routes (0x09I).

Replicas create more feasible sources and spread the sending, and cost memory at their owners.
"""

from collections.abc import Mapping, Sequence

import msgspec

from baton.core.ids import Role
from baton.policy.routing.load import WorkerLoad

_MAX_PREFIXES = 1024
HALF_LIFE_US = 60_000_000


class Replication(msgspec.Struct, frozen=True, kw_only=True):
    """Copy the first `num_blocks` blocks of a prompt from an owner to a worker that lacks them."""

    owner: str
    target: str
    num_blocks: int


class HotPrefixes:
    """Recent hits by the name of a prefix's last block; the coldest of too many is forgotten."""

    def __init__(self, half_life_us: int = HALF_LIFE_US, max_prefixes: int = _MAX_PREFIXES) -> None:
        self._half_life_us = half_life_us
        self._max_prefixes = max_prefixes
        self._hits: dict[bytes, tuple[float, int, int]] = {}
        """Hits as they counted at a moment, and how many blocks the prefix has."""

    def __len__(self) -> int:
        return len(self._hits)

    def hits(self, last_hash: bytes, now_us: int) -> float:
        """Hits so far, of which half are forgotten every half-life."""
        count, at_us, _ = self._hits.get(last_hash, (0.0, now_us, 0))
        return float(count * 0.5 ** (max(0, now_us - at_us) / self._half_life_us))

    def hit(self, last_hash: bytes, now_us: int, num_blocks: int = 1) -> float:
        """A prompt began with this prefix; returns its hits."""
        count = self.hits(last_hash, now_us) + 1.0
        if last_hash not in self._hits and len(self._hits) >= self._max_prefixes:
            del self._hits[min(self._hits, key=lambda name: (self.hits(name, now_us), name))]
        self._hits[last_hash] = (count, now_us, num_blocks)
        return count

    def hottest(self, count: int, now_us: int) -> list[tuple[bytes, float, int]]:
        """The prefixes with the most recent hits: last block's name, hits, blocks."""
        found = [
            (name, self.hits(name, now_us), blocks) for name, (_, _, blocks) in self._hits.items()
        ]
        return sorted(found, key=lambda prefix: (-prefix[1], prefix[0]))[:count]

    def forget(self, last_hash: bytes) -> None:
        """It was copied: the next replica has to earn its hits anew."""
        self._hits.pop(last_hash, None)


def replication(
    hits: float,
    num_blocks: int,
    depths: Mapping[str, int],
    workers: Sequence[WorkerLoad],
    *,
    replicate_hits: int,
    max_replicas: int,
) -> Replication | None:
    """One more owner for a prefix of which every owner has had `replicate_hits` hits.

    From the least-loaded owner to the least-loaded prefill worker without it; None when it is not
    hot enough, has owners enough, or nobody is left. 0 hits replicate nothing.
    """
    owners = [w for w in workers if depths.get(w.worker_id, 0) >= num_blocks > 0]
    sources = [w for w in owners if w.role is not Role.DECODE]
    if not replicate_hits or not owners or hits < replicate_hits * max(1, len(sources)):
        return None
    held = {w.worker_id for w in owners}
    targets = [w for w in workers if w.role is not Role.DECODE and w.worker_id not in held]
    if len(sources) >= max_replicas or not targets:
        return None
    owner, target = min(owners, key=_busy), min(targets, key=_busy)
    return Replication(owner=owner.worker_id, target=target.worker_id, num_blocks=num_blocks)


def _busy(worker: WorkerLoad) -> tuple[float, int, int, str]:
    return worker.pending_us, worker.pending_tokens, worker.active_requests, worker.worker_id
