"""How far apart the two workers of a route are (0x0FF)."""

from enum import StrEnum

from baton.core.snapshot import WorkerInfo

_TCP = "tcp://"


class Topology(StrEnum):
    """What lies between source and destination."""

    WORKER = "worker"
    """Nothing: the source is the destination."""
    HOST = "host"
    """The memory of one host."""
    NETWORK = "network"
    """Workers announce different addresses."""
    UNKNOWN = "unknown"
    """The source was gone before its publication was heard of."""


def topology_of(source: WorkerInfo | None, destination: WorkerInfo) -> Topology:
    """By the addresses that both announce; a control channel within a host has none."""
    if source is None:
        return Topology.UNKNOWN
    if source.worker_id == destination.worker_id:
        return Topology.WORKER
    is_one = _address(source.endpoint) == _address(destination.endpoint)
    return Topology.HOST if is_one else Topology.NETWORK


def _address(endpoint: str) -> str:
    """The host of `tcp://HOST:PORT`; "" for whatever does not leave its host."""
    if not endpoint.startswith(_TCP):
        return ""
    return endpoint.removeprefix(_TCP).rpartition(":")[0]
