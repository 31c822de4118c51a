"""What the parts of a worker share: identity, memory, clock reading, effects, counters."""

from collections import Counter

from baton.cache.pool import MemPool
from baton.config import CacheConfig, TransferConfig, WorkerConfig
from baton.core.cache import Milestone
from baton.core.effects import Effect, Send, Trace
from baton.core.events import ChunkMoved
from baton.core.ids import Fence, Role
from baton.core.layout import KVLayout, ModelInfo
from baton.core.messages import Message
from baton.core.sets import TransferLedger
from baton.core.snapshot import WorkerInfo
from baton.protocol.capability import CapabilityDenial, CapabilityGate
from baton.protocol.signing import Verifier

ROUTER = "router"


class WorkerContext:
    """One per worker life. `now_us` is the host's clock at the event being handled."""

    def __init__(
        self,
        *,
        worker_id: str,
        ordinal: int,
        epoch: int,
        role: Role,
        model: ModelInfo,
        num_blocks: int,
        num_host_blocks: int,
        num_disk_blocks: int,
        worker: WorkerConfig,
        transfer: TransferConfig,
        cache: CacheConfig,
        verifier: Verifier,
    ) -> None:
        self.worker_id = worker_id
        self.ordinal = ordinal
        self.epoch = epoch
        self.role = role
        self.model = model
        self.worker = worker
        self.transfer = transfer
        self.cache = cache
        self.memory = MemPool(
            num_blocks,
            model.layout,
            model.identity,
            prefix_caching=self.keeps_prompts,
            owner=worker_id,
            epoch=epoch,
            eviction=cache.eviction,
            num_host_blocks=num_host_blocks,
            num_disk_blocks=num_disk_blocks,
        )
        self.gate = CapabilityGate(verifier, max_ttl_us=transfer.capability_ttl_ms * 1000)
        self.peers: dict[str, WorkerInfo] = {}
        self.now_us = 0
        self.counters: Counter[str] = Counter()
        self._effects: list[Effect] = []
        self._num_reservations = 0

    @property
    def keeps_prompts(self) -> bool:
        """Rows of prompts stay here as history for later ones (0x09D)."""
        milestone = self.cache.milestone
        decodes_only = self.role is Role.DECODE
        return milestone.decode_keeps_prompts if decodes_only else milestone is not Milestone.NONE

    @property
    def cache_generation(self) -> int:
        """History of a lower generation may not be used any more."""
        return self.memory.generation

    @property
    def layout(self) -> KVLayout:
        """The K/V layout of this worker's pool."""
        return self.model.layout

    def layout_of(self, worker_id: str) -> KVLayout:
        """The K/V layout of this worker or of a live peer."""
        peer = self.peers.get(worker_id)
        return self.layout if peer is None else peer.model.layout

    def emit(self, effect: Effect) -> None:
        """Ask the host for something, after everything asked before."""
        self._effects.append(effect)

    def send(self, to: str, message: Message) -> None:
        """Ask the host to send a message."""
        self._effects.append(Send(to=to, message=message))

    def trace(self, name: str, fence: Fence, **data: int | float | str) -> None:
        """Emit one trace event of a request."""
        self._effects.append(
            Trace(name=name, request_id=fence.request_id, generation=fence.generation, data=data)
        )

    def trace_moved(self, fence: Fence, event: ChunkMoved) -> None:
        """Emit what a move that this side ordered came to."""
        error = {"error": event.error} if event.error else {}
        self.trace(
            "chunk_moved",
            fence,
            chunk_id=event.chunk_id,
            nbytes=event.nbytes,
            duration_us=event.duration_us,
            **error,
        )

    def count_transfer(self, ledger: TransferLedger, *, is_copy: bool, remote: bool) -> None:
        """Book what was published: logical payload and each named kind of extra traffic.

        Handoffs and copies of history have an account each.
        """
        kind = "copy" if is_copy else "handoff"
        self.counters[f"{kind}_logical_bytes"] += ledger.logical_nbytes
        self.counters[f"{kind}_padding_bytes"] += ledger.padding_nbytes
        self.counters[f"{kind}_duplicate_bytes"] += ledger.duplicate_nbytes
        self.counters[f"{kind}_framing_bytes"] += ledger.framing_nbytes
        self.counters["handoffs"] += remote and not is_copy

    def deny(self, denial: CapabilityDenial | None) -> CapabilityDenial | None:
        """Count a refused capability by its reason, and hand the outcome on."""
        if denial is not None:
            self.counters[f"capability_denied_{denial}"] += 1
        return denial

    def take_effects(self) -> list[Effect]:
        """Everything asked for since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    def mint_reservation_id(self) -> int:
        """An id that no other worker, and no other life of this one, can mint."""
        self._num_reservations += 1
        assert self._num_reservations < 1 << 32
        return (self.ordinal << 48) | ((self.epoch & 0xFFFF) << 32) | self._num_reservations

    def is_live_peer(self, worker_id: str, epoch: int) -> bool:
        """True when that life of that worker is known to be up, or is this worker itself."""
        if worker_id == self.worker_id:
            return epoch == self.epoch
        peer = self.peers.get(worker_id)
        return peer is not None and peer.epoch == epoch
