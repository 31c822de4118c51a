"""What both sides of a connector share: who it is, its rights, its peers, what it gives out."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from baton.core.effects import CancelIo
from baton.core.ids import Fence
from baton.core.layout import KVLayout
from baton.integrations.vllm.info import ConnectorInfo
from baton.integrations.vllm.messages import Message, Pair, Paired
from baton.integrations.vllm.orders import Ended
from baton.integrations.vllm.outputs import Answer, Output, Tell
from baton.integrations.vllm.records import Records
from baton.integrations.vllm.settings import Settings
from baton.protocol.capability import CapabilityGate
from baton.protocol.directory import Directory
from baton.protocol.signing import Verifier

PeerKey = tuple[str, int]
"""A worker and its epoch."""


class Peer:
    """One life of a connector that this one has met."""

    def __init__(self, hello: Pair | Paired) -> None:
        self.hello = hello
        self.heard_us = 0
        self.told_us = 0
        """When it was last told that its handoffs are alive here."""

    @property
    def info(self) -> ConnectorInfo:
        """What it says of itself."""
        return self.hello.info


class Context:
    """Shared by the two sides of one node; nothing here waits, reads a clock or moves a byte."""

    def __init__(
        self,
        info: ConnectorInfo,
        settings: Settings,
        verifier: Verifier,
        reservations: Iterator[int],
        *,
        inward: KVLayout | None = None,
        outward: KVLayout | None = None,
    ) -> None:
        self.info = info
        self.inward = inward or info.layout
        """In which this leg's loads are moved, summed and sealed."""
        self.outward = outward or info.layout
        """The same of its holds."""
        self.settings = settings
        self.gate = CapabilityGate(verifier, max_ttl_us=1000 * settings.max_deadline_ms)
        self.fences = Directory()
        """Publications, and the generations below which nothing may enter any more."""
        self.peers: dict[PeerKey, Peer] = {}
        self.counters: Counter[str] = Counter()
        self.records = Records()
        """Of loads that have ended here."""
        self.now_us = 0
        self._outputs: list[Output] = []
        self._reservations = reservations

    @property
    def key(self) -> PeerKey:
        """This life."""
        return self.info.member.worker_id, self.info.member.epoch

    def next_reservation(self) -> int:
        """An id that no other life mints: they begin far apart."""
        return next(self._reservations)

    def emit(self, output: Output) -> None:
        """Give an effect out."""
        self._outputs.append(output)

    def take(self) -> list[Output]:
        """The effects since the last call, in order."""
        taken, self._outputs = self._outputs, []
        return taken

    def tell(self, key: PeerKey, message: Message) -> None:
        """Send a message; to a life that is not known any more it is dropped."""
        if key in self.peers:
            self.emit(Tell(worker_id=key[0], epoch=key[1], message=message))

    def answer(self, ended: Ended) -> None:
        """Tell vLLM that something is over."""
        self.emit(Answer(ended=ended))

    def cancel(self, fence: Fence) -> None:
        """Let the data plane stop everything of a reservation."""
        self.emit(CancelIo(reservation_id=fence.reservation_id))

    def hear(self, key: PeerKey) -> None:
        """A life of a peer has said something."""
        peer = self.peers.get(key)
        if peer is not None:
            peer.heard_us = self.now_us


def unreserved(fence: Fence) -> Fence:
    """The fence as the ticket has it: the reservation is the destination's and came later."""
    return msgspec.structs.replace(fence, reservation_id=0)


def source_of(fence: Fence) -> PeerKey:
    """The life that sends."""
    return fence.source_id, fence.source_epoch


def destination_of(fence: Fence) -> PeerKey:
    """The life that receives."""
    return fence.destination_id, fence.destination_epoch
