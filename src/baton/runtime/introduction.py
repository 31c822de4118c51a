"""What a worker says of itself, checked before it is believed: by the router and by its peers."""

import msgspec

from baton.core.snapshot import WorkerInfo
from baton.errors import RemoteProtocolError
from baton.nodes.context import ROUTER
from baton.runtime.dataplane import RegionDescriptor, ShmRegion
from baton.runtime.regions import stage_layers


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
    _require_room(who, info, region)
    if isinstance(region, ShmRegion):
        _require_inside(who, region)
    return region


def _require_room(who: str, info: WorkerInfo, region: RegionDescriptor) -> None:
    """Every pipeline stage offers memory for the blocks of its own layers."""
    layout = info.model.layout
    stages = stage_layers(layout)
    if len(region.sizes) != len(stages):
        raise RemoteProtocolError(
            f"the region of {who} is that of {len(region.sizes)} pipeline stages, and its layout "
            f"has pp_size {layout.pp_size}"
        )
    for stage, (nbytes, layers) in enumerate(zip(region.sizes, stages, strict=True)):
        block_nbytes = layers.size * layout.layer_block_nbytes
        if info.num_blocks < 1 or nbytes < info.num_blocks * block_nbytes:
            where = f"stage {stage} of the region" if len(stages) > 1 else "the region"
            raise RemoteProtocolError(
                f"{where} of {who} has {nbytes} bytes, which is no room for its "
                f"num_blocks {info.num_blocks} of {block_nbytes} bytes each"
            )


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
