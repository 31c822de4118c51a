"""What a worker tells the router about its load, and the router about its peers."""

import msgspec

from baton.core.cache import TierLoad
from baton.core.ids import Role
from baton.core.layout import ModelInfo

_MAX_RATE = 1e9


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Measured constants of one worker; 0 until measured."""

    prefill_us_per_token: float = 0.0
    decode_step_us: float = 0.0
    transfer_bytes_per_us: float = 0.0
    transfer_overhead_us: float = 0.0
    """Of one chunk, from end to end: its order, and what the event loop does for it."""
    transfer_run_us: float = 0.0
    """Of one more contiguous stretch in the same order."""
    digest_bytes_per_us: float = 0.0
    """Read-back of what has arrived; 0 where nothing is read back."""
    prefill_us_per_pair: float = 0.0
    """Of each causal (query, key) pair, beside the cost of its row; 0 where it does not show."""
    decode_us_per_sequence: float = 0.0
    """What one more sequence adds to a decode step; 0 where it does not show."""

    def plausible(self) -> "Rates":
        """The same, with 0 (not measured) for what no clock can have measured."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return Rates(**{k: v if 0 <= v <= _MAX_RATE else 0.0 for k, v in values.items()})


class LoadSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's load at one moment; `version` grows with every snapshot of an epoch."""

    worker_id: str
    worker_epoch: int
    role: Role
    role_epoch: int
    version: int
    waiting: int
    running: int
    pending_tokens: int
    free_blocks: int
    reserved_blocks: int
    cached_blocks: int
    quarantined_blocks: int
    total_blocks: int
    inflight_nbytes: int
    held_copies: int
    source_leases: int = 0
    """Transfers that this worker still gives from and that end by themselves if nobody speaks."""
    destination_leases: int = 0
    """Reservations here that do."""
    batch_us: int = 0
    """How long the engine owes its oldest answer, a batch or a digest; 0 while it is idle."""
    rates: Rates = Rates()
    counters: dict[str, int] = {}
    peers: dict[str, int] = {}
    """Epochs of the peers that this worker believes to be alive; the router corrects it."""
    unproven: tuple[tuple[str, int], ...] = ()
    """Lives of peers, by id and epoch, that were given up and may still write here; the router
    repeats what it knows of their end."""
    revoked_below: int = 0
    """Route epochs below this one authorize nothing here; the router repeats a lost word."""
    cache_generation: int = 0
    cache_sequence: int = 0
    """Number of the next change of what is held: shows the router whether it has missed one."""
    tiers: tuple[TierLoad, ...] = ()


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that said hello: where it is, what it can decode, what a peer may map."""

    worker_id: str
    epoch: int
    role: Role
    pid: int
    version: str
    endpoint: str
    model: ModelInfo
    num_blocks: int
    max_num_seqs: int
    region: bytes
    """The data plane's own descriptor of this worker's registered memory."""
    control_key: bytes = b""
    """Public CURVE key (Z85) of this life on the control channel; empty within one host."""
    versions: tuple[tuple[str, str], ...] = ()
    """Distributions and their releases, which can change a bit that this worker computes."""
