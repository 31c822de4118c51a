"""Data planes: how K/V bytes move between workers, behind one interface of four verbs."""

from baton.runtime.dataplane.arena import Arena, ArenaDescriptor
from baton.runtime.dataplane.plane import (
    Completion,
    DataPlane,
    DigestOrder,
    Finished,
    NixlRegion,
    PlaneFault,
    PlaneStats,
    PutOrder,
    Quiesced,
    Rates,
    Received,
    RegionDescriptor,
    ShmRegion,
)
from baton.runtime.dataplane.segments import sweep_orphans
from baton.runtime.dataplane.shm_plane import ShmDataPlane

__all__ = [
    "Arena",
    "ArenaDescriptor",
    "Completion",
    "DataPlane",
    "DigestOrder",
    "Finished",
    "NixlRegion",
    "PlaneFault",
    "PlaneStats",
    "PutOrder",
    "Quiesced",
    "Rates",
    "Received",
    "RegionDescriptor",
    "ShmDataPlane",
    "ShmRegion",
    "sweep_orphans",
]
