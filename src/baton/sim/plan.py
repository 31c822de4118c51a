"""A plan is everything that a run depends on: configuration, hardware, requests and faults."""

import msgspec

from baton.config import CacheConfig, RouterConfig, TransferConfig, WorkerConfig
from baton.core.ids import Role
from baton.core.request import Request
from baton.sim.clock import Clock
from baton.sim.faults import Counted, FaultRates, Scheduled, describe


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """How long things take, in microseconds."""

    row_us: int = 20
    step_us: int = 200
    copy_us: int = 50
    copy_us_per_kib: int = 20
    control_us: int = 100
    control_jitter_us: int = 100
    notify_us: int = 20
    digest_us: int = 10


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request and, perhaps, when the client gives it up."""

    at_us: int
    request: Request
    cancel_after_us: int = -1
    cancel_reason: str = "disconnect"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Equal plans give equal runs, event for event.

    With `replayed` only the listed counted faults happen; otherwise they are drawn by `rates`.
    """

    seed: int = 0
    roles: tuple[Role, ...] = (Role.PREFILL, Role.DECODE)
    num_blocks: int = 64
    unequal_pools: tuple[int, ...] = ()
    """Blocks per worker where they differ; then `num_blocks` counts for nobody."""
    decode_block_size: int = 0
    """Tokens of a block of decode workers; 0: `worker.block_size`."""
    prefill_pp: int = 1
    """Pipeline stages of workers that prefill; only the cut of their chunks shows it here."""
    decode_pp: int = 1
    """The same of decode workers."""
    num_host_blocks: int = 0
    num_disk_blocks: int = 0
    """Blocks of each worker's tiers below memory; 0: none."""
    num_layers: int = 3
    max_model_len: int = 512
    worker: WorkerConfig = WorkerConfig(block_size=4, max_batch_tokens=16)
    transfer: TransferConfig = TransferConfig(chunk_nbytes=128, credit_nbytes=256)
    router: RouterConfig = RouterConfig()
    cache: CacheConfig = CacheConfig()
    hardware: Hardware = Hardware()
    clocks: dict[str, Clock] = {}
    arrivals: tuple[Arrival, ...] = ()
    scheduled: tuple[Scheduled, ...] = ()
    rates: FaultRates = FaultRates()
    counted: tuple[Counted, ...] = ()
    replayed: bool = False
    late_delivery: bool = False
    """Messages to a dead life reach the next one, as a proxy that reconnects would do it."""
    asymmetric: bool = False
    """Capabilities are signed with a private key that workers do not have, not with a secret."""
    fault_end_us: int = 0
    """End of the safety phase: counted faults stop, everything heals."""

    @property
    def worker_ids(self) -> tuple[str, ...]:
        """Ids of the workers, in start order."""
        return tuple(f"{role}-{number}" for number, role in enumerate(self.roles))

    @property
    def pools(self) -> tuple[int, ...]:
        """Blocks of each worker, in start order."""
        return self.unequal_pools or (self.num_blocks,) * len(self.roles)

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Tokens of a block of each worker, in start order."""
        own = self.worker.block_size
        decodes = self.decode_block_size or own
        return tuple(decodes if role is Role.DECODE else own for role in self.roles)

    @property
    def pp_sizes(self) -> tuple[int, ...]:
        """Pipeline stages of each worker, in start order."""
        decodes = self.decode_pp
        return tuple(decodes if role is Role.DECODE else self.prefill_pp for role in self.roles)

    @property
    def capacities(self) -> tuple[int, ...]:
        """Rows that the pool of each worker holds, in start order."""
        return tuple(n * size for n, size in zip(self.pools, self.block_sizes, strict=True))


def plan_lines(plan: Plan) -> list[str]:
    """The plan for a person: what differs from a calm default, and every fault."""
    worker, transfer, router = plan.worker, plan.transfer, plan.router
    lines = [
        f"seed {plan.seed}: workers {' '.join(plan.worker_ids)}",
        f"  pools of {', '.join(map(str, plan.pools))} blocks of "
        f"{' and '.join(map(str, dict.fromkeys(plan.block_sizes)))} tokens, "
        f"{plan.num_layers} layers; "
        f"{worker.batch_policy} batches of {worker.max_batch_tokens} rows, "
        f"{worker.max_num_seqs} sequences; "
        f"cache {plan.cache.milestone}, growth {worker.growth_tokens}",
        f"  {plan.cache.eviction} eviction; tiers below memory: "
        f"{plan.num_host_blocks} blocks of host, {plan.num_disk_blocks} of disk",
        f"  {transfer.direction} {transfer.schedule}: chunk {transfer.chunk_nbytes} B, credit "
        f"{transfer.credit_nbytes} B, checksum {transfer.checksum}, lease {transfer.lease_ms} ms, "
        f"retry {transfer.retry_ms} ms",
        f"  queue of {router.max_waiting_requests} requests, {router.max_pending_tokens} tokens; "
        f"first token within {router.ttft_budget_ms} ms, "
        f"{'a private key' if plan.asymmetric else 'one secret'}",
        f"  attempts {router.max_attempts} of {router.attempt_timeout_ms} ms, worker timeout "
        f"{router.worker_timeout_ms} ms",
        f"  routes by {router.policy} (threshold {router.balancing_threshold:g}), admission "
        f"{router.admission}, order {router.fairness}",
        f"  {len(plan.arrivals)} requests, "
        f"{sum(a.cancel_after_us >= 0 for a in plan.arrivals)} given up by their clients",
        f"  rates {_rates(plan.rates)}; faults end at {plan.fault_end_us / 1e6:.3f} s",
    ]
    if plan.clocks:
        drift = ", ".join(f"{name} {clock.drift_ppm:+}" for name, clock in plan.clocks.items())
        lines.append(f"  clock drift in ppm: {drift}")
    lines += [f"  {describe(fault)}" for fault in (*plan.scheduled, *plan.counted)]
    return lines


def _rates(rates: FaultRates) -> str:
    named = [(name, getattr(rates, name)) for name in rates.__struct_fields__]
    return ", ".join(f"{name} {value:g}" for name, value in named if value) or "all 0"
