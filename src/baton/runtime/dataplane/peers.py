"""Why a peer's region is refused, whatever the plane."""

from baton.errors import RemoteProtocolError
from baton.runtime.dataplane.plane import RegionDescriptor


def other_plane(descriptor: RegionDescriptor, own: str) -> RemoteProtocolError:
    """The refusal of a region that another kind of plane offers."""
    kind = type(descriptor).__struct_config__.tag
    return RemoteProtocolError(
        f"{descriptor.worker_id} epoch {descriptor.epoch} offers its memory through {kind}, and "
        f"this worker uses {own}; set the same transfer.data_plane on every worker"
    )


def require_newer(descriptor: RegionDescriptor, known_epoch: int) -> None:
    """Refuse a region of a worker that is connected under the same or a later epoch."""
    if known_epoch >= descriptor.epoch:
        raise RemoteProtocolError(
            f"{descriptor.worker_id} epoch {descriptor.epoch} is older than, or another life of, "
            f"the connected epoch {known_epoch}"
        )
