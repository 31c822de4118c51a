"""What a worker says of itself, checked before it is believed: by the router and by its peers."""

import msgspec

from baton.core.snapshot import WorkerInfo
from baton.errors import RemoteProtocolError
from baton.nodes.context import ROUTER
from baton.runtime.dataplane import RegionDescriptor, ShmRegion


def check_introduction(info: WorkerInfo, *, control: str) -> RegionDescriptor:
    """The region that a worker offers, once everything it says of itself agrees with itself.

    `control` is the kind of the own control channel, "ipc" or "tcp". Raises RemoteProtocolError
    with the name of what is wrong. A region under another name would take that worker's place in
    the data plane of everyone who maps it.
    """
    if info.worker_id == ROUTER:
        raise RemoteProtocolError(
            f"worker_id {info.worker_id!r} is reserved for the router; give the worker another"
        )
    who = f"worker {info.worker_id} epoch {info.epoch}"
    if not info.endpoint.startswith(f"{control}://"):
        raise RemoteProtocolError(
            f"{who} has the endpoint {info.endpoint!r}, not one of {control}; set the same "
            "cluster.control on every worker"
        )
    region = _decoded(who, info.region)
    if (region.worker_id, region.epoch) != (info.worker_id, info.epoch):
        raise RemoteProtocolError(
            f"the region of {who} is that of {region.worker_id} epoch {region.epoch}; a worker "
            "offers its own memory only"
        )
    needed = info.num_blocks * info.model.layout.bytes_per_block
    if info.num_blocks < 1 or region.nbytes < needed:
        raise RemoteProtocolError(
            f"the region of {who} has {region.nbytes} bytes, which is no room for its "
            f"num_blocks {info.num_blocks} of {info.model.layout.bytes_per_block} bytes each"
        )
    if isinstance(region, ShmRegion):
        _require_inside(who, region)
    return region


def _require_inside(who: str, region: ShmRegion) -> None:
    if region.offset < 0 or region.offset + region.nbytes > region.arena.nbytes:
        raise RemoteProtocolError(
            f"the region of {who} leaves its arena: {region.nbytes} bytes at {region.offset} of "
            f"{region.arena.nbytes}"
        )


def _decoded(who: str, region: bytes) -> RegionDescriptor:
    try:
        return msgspec.msgpack.decode(region, type=RegionDescriptor)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RemoteProtocolError(
            f"the region of {who} is not the descriptor of one: {error}"
        ) from error
