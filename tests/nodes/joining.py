"""A router alone, and workers that exist only as what they say in their hello."""

import msgspec

from baton.config import RouterConfig, TransferConfig
from baton.core import effects
from baton.core.events import Event, Received
from baton.core.ids import Role
from baton.core.messages import Envelope, Hello, Message
from baton.core.snapshot import WorkerInfo
from baton.nodes.router import Router
from baton.protocol.signing import HmacKey
from baton.sim.arithmetic import model_info

MODEL = model_info(block_size=4, num_layers=3, max_model_len=512)


def info(worker_id: str, role: Role = Role.DECODE, epoch: int = 1, **changes: object) -> WorkerInfo:
    """What a worker says of itself, but for `changes`."""
    said = WorkerInfo(
        worker_id=worker_id,
        epoch=epoch,
        role=role,
        pid=1,
        version="1",
        endpoint="",
        model=MODEL,
        num_blocks=64,
        max_num_seqs=8,
        region=b"",
    )
    return msgspec.structs.replace(said, **changes)


def lone_router(config: RouterConfig | None = None) -> Router:
    """A router that knows nobody yet."""
    key = HmacKey("router/test", bytes(32))
    return Router(config or RouterConfig(), TransferConfig(), signer=key)


def sends(router: Router, event: Event, now_us: int = 1) -> list[tuple[str, Message]]:
    """What the router sends to whom because of an event."""
    return [(e.to, e.message) for e in router.handle(event, now_us) if isinstance(e, effects.Send)]


def hello(router: Router, worker: WorkerInfo) -> list[tuple[str, Message]]:
    """A worker joins, or is refused."""
    message = Hello(info=worker)
    envelope = Envelope(sender_id=worker.worker_id, sender_epoch=worker.epoch, message=message)
    return sends(router, Received(envelope=envelope))
