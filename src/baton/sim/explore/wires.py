"""Lanes between the processes, and the messages in them by number."""

from baton.core.events import ChunkArrived, Submitted, WorkerLost
from baton.core.ids import Fence
from baton.core.messages import Envelope, Hello, Prefill, Renew, TokenRows, fence_of
from baton.nodes.context import ROUTER
from baton.sim.explore.setup import DECODE, NAMES, PREFILL
from baton.sim.explore.store import Numbered

NUM_LANES = 8
TO_PREFILL, TO_DECODE, FROM_PREFILL, FROM_DECODE, FORTH, BACK, NOTIFY, SUPERVISOR = range(NUM_LANES)
CONTROL = (TO_PREFILL, TO_DECODE, FROM_PREFILL, FROM_DECODE, FORTH, BACK)
LANE_NAMES = (
    f"{ROUTER} -> {NAMES[PREFILL]}",
    f"{ROUTER} -> {NAMES[DECODE]}",
    f"{NAMES[PREFILL]} -> {ROUTER}",
    f"{NAMES[DECODE]} -> {ROUTER}",
    f"{NAMES[PREFILL]} -> {NAMES[DECODE]}",
    f"{NAMES[DECODE]} -> {NAMES[PREFILL]}",
    f"notify {NAMES[PREFILL]} -> {NAMES[DECODE]}",
    f"supervisor -> {ROUTER}",
)
RECEIVERS = (PREFILL, DECODE, 2, 2, DECODE, PREFILL, DECODE, 2)
"""Who takes from each lane; 2 is the router."""
INTO = ((TO_PREFILL, BACK), (TO_DECODE, FORTH, NOTIFY))
"""Lanes that end in a worker, and with its life."""
SENDERS = (
    ((DECODE, BACK),),
    ((PREFILL, FORTH),),
    ((PREFILL, FROM_PREFILL), (DECODE, FROM_DECODE)),
)
"""Per receiver, the router last: which worker sends to it on which lane."""
LANE_OF = {
    (ROUTER, NAMES[PREFILL]): TO_PREFILL,
    (ROUTER, NAMES[DECODE]): TO_DECODE,
    (NAMES[PREFILL], ROUTER): FROM_PREFILL,
    (NAMES[DECODE], ROUTER): FROM_DECODE,
    (NAMES[PREFILL], NAMES[DECODE]): FORTH,
    (NAMES[DECODE], NAMES[PREFILL]): BACK,
}

Carried = Envelope | ChunkArrived | WorkerLost | Submitted


class Wires:
    """Messages by number; one vocabulary for every lane."""

    def __init__(self) -> None:
        self.carried: Numbered[Carried] = Numbered()

    def number(self, item: Carried) -> int:
        """The number of a message."""
        return self.carried.number(item)

    def is_stale_for(self, number: int, name: str, epoch: int) -> bool:
        """True when a control message is fenced to an older life of its receiver."""
        item = self.carried.values[number]
        if not isinstance(item, Envelope):
            return False
        message = item.message
        fences = message.fences if isinstance(message, Renew) else (fence_of(message),)
        lives = [_life_of(fence, name) for fence in fences if fence is not None]
        return bool(lives) and max(lives) < epoch

    def is_of_first_life(self, number: int) -> bool:
        """True for anything but a hello that the first life of a worker sent."""
        item = self.carried.values[number]
        return (
            isinstance(item, Envelope)
            and item.sender_epoch == 1
            and not isinstance(item.message, Hello)
        )

    def is_prefill(self, number: int) -> bool:
        """True for the one kind of message that a prefill worker answers to the router."""
        item = self.carried.values[number]
        return isinstance(item, Envelope) and isinstance(item.message, Prefill)

    def describe(self, number: int) -> str:
        """A message in a few words."""
        item = self.carried.values[number]
        if isinstance(item, ChunkArrived):
            return f"ChunkArrived chunk {item.chunk_id} of reservation {item.reservation_id:#x}"
        if isinstance(item, WorkerLost):
            return f"WorkerLost {item.worker_id} epoch {item.epoch}"
        if isinstance(item, Submitted):
            return f"Submitted {item.request.request_id}"
        return f"{type(item.message).__name__} {_about(item)}".rstrip()


def _life_of(fence: Fence, name: str) -> int:
    return fence.source_epoch if fence.source_id == name else fence.destination_epoch


def _about(envelope: Envelope) -> str:
    message = envelope.message
    if isinstance(message, TokenRows):
        return ", ".join(f"{r.request_id}.{r.generation}[{r.token.index}]" for r in message.rows)
    if isinstance(message, Renew):
        return ", ".join(fence.transfer_id for fence in message.fences)
    fence: Fence | None = fence_of(message)
    words = [fence.transfer_id] if fence is not None else []
    words += [
        f"{name} {getattr(message, name)}"
        for name in ("chunk_ids", "reason", "next_index", "epoch")
        if hasattr(message, name)
    ]
    return " ".join(words)
