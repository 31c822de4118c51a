"""A routable worker as a policy sees it, with what the router itself has outstanding there."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import force_setattr

from baton.core.ids import Role
from baton.core.snapshot import Rates


class WorkerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at this moment; queues are the router's own account, rates the worker's own."""

    worker_id: str
    role: Role
    pending_tokens: int
    """Prompt tokens routed here that it still has to compute."""
    active_requests: int
    """Requests that decode here, or will."""
    headroom_blocks: int
    accepting: bool = True
    pending_us: float = 0.0
    """The same queue in time, by its own rates; 0 until they are measured."""
    running: int = 0
    """Sequences in its decode batch when its step was measured."""
    max_requests: int = 0
    """Requests that may decode here at once; 0: not known."""
    rates: Rates = Rates()
    tier_bytes_per_us: float = 0.0
    """Rate of bringing blocks from its slower tiers into memory; 0 until measured."""
    tpot_us: float = 0.0
    """Predicted step with one more request: derived here once, since every decision asks for it."""
    admission_us: float = 0.0
    """How long a published request waits for the step that is under way: derived likewise."""

    def __post_init__(self) -> None:
        force_setattr(self, "tpot_us", _tpot_us(self))
        force_setattr(self, "admission_us", _admission_us(self))


def _tpot_us(worker: WorkerLoad) -> float:
    """The measured step, and what each request beyond its batch adds, this one included."""
    rates = worker.rates
    more = max(0, worker.active_requests + 1 - worker.running)
    return rates.decode_step_us + rates.decode_us_per_sequence * more


def _admission_us(worker: WorkerLoad) -> float:
    """A published request joins at the next step; a step that is under way ends first."""
    return worker.rates.decode_step_us if worker.active_requests else 0.0


def can_hold(worker: WorkerLoad, num_blocks: int) -> bool:
    """It takes new requests, and has the blocks of this one."""
    return worker.accepting and worker.headroom_blocks >= num_blocks


def least_loaded(workers: Sequence[WorkerLoad]) -> WorkerLoad:
    """The fewest requests, then the most room, then the name."""
    return min(workers, key=lambda w: (w.active_requests, -w.headroom_blocks, w.worker_id))
