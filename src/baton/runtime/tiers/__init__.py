"""The lower tiers of a worker's K/V: shared memory of its host, and files that outlive it."""

from baton.runtime.tiers.capacity import TierCapacity, tier_capacity
from baton.runtime.tiers.worker_tiers import WorkerTiers

__all__ = ["TierCapacity", "WorkerTiers", "tier_capacity"]
