"""What one part of a chaos run deploys, and how its host process is told."""

from pathlib import Path

import msgspec

from baton.bench.chaos.kinds import Kind
from baton.config import BatonConfig
from baton.core.ids import Direction
from baton.runtime.faults import FaultSpec

LEASE_MS = 3_000
WORKER_TIMEOUT_MS = 1_000
REQUEST_BOUND_S = 45.0
"""Past this, a request that has not ended is stuck."""

_KIB = 1 << 10
_MIB = 1 << 20
_DELAY_MS = 120


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the run with one way to transfer and one control channel."""

    direction: Direction
    control: str
    share: float
    """Of the run's time."""

    @property
    def name(self) -> str:
        """For the reader."""
        return f"{self.direction} over {self.control}"


PARTS = (
    Part(direction=Direction.PUSH, control="ipc", share=0.25),
    Part(direction=Direction.PUSH, control="tcp", share=0.25),
    Part(direction=Direction.PULL, control="ipc", share=0.5),
)
SHORT_PARTS = (Part(direction=Direction.PUSH, control="tcp", share=1.0),)
"""Of a run that is over before a second deployment would be up."""


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """First line on the standard input of a host process."""

    config: BatonConfig
    faults: FaultSpec | None = None
    trace_dir: str = ""


def reference_config(base: BatonConfig) -> BatonConfig:
    """One calm colocated worker."""
    return _changed(base, cluster={"prefill": 0, "decode": 0, "mixed": 1})


def part_config(base: BatonConfig, part: Part, pairs: int, tiers: Path) -> BatonConfig:
    """So many workers of each role, with short times: seconds hold what hours would.

    Memory holds some prompts of the load, memory with the tiers below it most of them: every
    prompt that comes again is partly in each.
    """
    return _changed(
        base,
        cluster={
            "prefill": pairs,
            "decode": pairs,
            "mixed": 0,
            "max_restarts": 100_000,
            "control": part.control,
        },
        worker={"max_batch_tokens": 128, "kv_nbytes": 5 * _MIB},
        cache={
            "host_nbytes": 2 * _MIB,
            "disk_dir": str(tiers),
            "disk_nbytes": 12 * _MIB,
            "replicate_hits": 2,
        },
        transfer={
            "direction": part.direction,
            "lease_ms": LEASE_MS,
            "retry_ms": 150,
            "chunk_nbytes": 64 * _KIB,
            "credit_nbytes": 256 * _KIB,
        },
        router={
            "worker_timeout_ms": WORKER_TIMEOUT_MS,
            "heartbeat_ms": 100,
            "attempt_timeout_ms": 6_000,
            "ttft_budget_ms": 20_000,
        },
    )


def fault_spec(kinds: frozenset[Kind], seed: int, gate: Path, ends: Path) -> FaultSpec:
    """The ambient faults of every process; they happen while the file `gate` exists.

    In the folder `ends` a worker finds the order to die in its next load from a tier.
    """
    return FaultSpec(
        seed=seed,
        drop=0.02 if Kind.DROP in kinds else 0.0,
        duplicate=0.02 if Kind.DUPLICATE in kinds else 0.0,
        delay=0.02 if Kind.DELAY in kinds else 0.0,
        delay_ms=_DELAY_MS,
        flip=0.06 if Kind.FLIP in kinds else 0.0,
        gate=str(gate),
        end_in_load=str(ends),
    )


def _changed(base: BatonConfig, **sections: dict[str, object]) -> BatonConfig:
    sections.setdefault("gateway", {}).update({"host": "127.0.0.1", "port": 0})
    values = {
        name: msgspec.structs.replace(getattr(base, name), **changes)
        for name, changes in sections.items()
    }
    return msgspec.structs.replace(base, **values)
