"""What the fast host simulates: workers in groups, the links between them, routing, failures."""

import math

import msgspec

from baton.core.ids import Role, Schedule
from baton.errors import ConfigError
from baton.hardware.curves import StepCurves
from baton.policy.batching.policies import POLICIES


class WorkerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal workers. Each is one instance of the model on `gpus` GPUs."""

    name: str
    role: Role
    num_workers: int
    curves: StepCurves
    kv_tokens: int
    """Tokens of K/V that one worker holds."""
    gpus: int = 1
    block_size: int = 16
    batch_policy: str = "sarathi_serve"
    max_batch_tokens: int = 2048
    max_num_seqs: int = 256
    keeps_prefixes: bool = True
    """K/V of finished requests stays until its room is needed, and is found again by hash id."""
    growth_tokens: int = 256
    """Decode rows that are reserved with the prompt; further blocks are taken as needed."""
    chunk_grid: int = 64
    """A chunk that does not end its prompt ends on a multiple of this where it can."""
    max_preemptions: int = 4
    """How often one sequence may lose its blocks while another one could; 0: no limit."""
    looks_ahead: bool = False
    """A step is chosen when the one before it begins (vLLM's asynchronous scheduling): who comes
    while a step runs is seen when it ends, and is not in the next one, which is chosen by then."""
    queues_at_worker: bool = False
    """Every request goes to its worker at once and waits there for blocks and for a place among
    `max_num_seqs`, first come first served (an engine with a queue of its own). Else the router
    holds it until a worker has reserved its blocks."""
    recomputes_as_prompt: bool = False
    """After a preemption, tokens of the answer are computed with the prompt's kernels (vLLM)."""
    keeps_preempted: bool = False
    """Blocks of a preempted request are found again when it goes on, as far as nobody took them
    since; they are taken from the end of its text (vLLM with prefix caching)."""
    steps_together: bool = False
    """Each step of all workers of the group lasts as long as the longest one's, and they share what
    `StepSide.group_rows` says (data-parallel ranks with experts spread over them)."""
    step_overhead_us: float = 0.0
    """What serving adds between two steps, and for each of their sequences."""
    sequence_overhead_us: float = 0.0

    def __post_init__(self) -> None:
        for name in (
            "num_workers",
            "kv_tokens",
            "gpus",
            "block_size",
            "max_num_seqs",
            "chunk_grid",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{self.name}: {name} is {getattr(self, name)}; at least 1")
        if self.steps_together and self.curves.pipeline > 1:
            raise ConfigError(
                f"{self.name}: steps_together with a pipeline of {self.curves.pipeline} stages is "
                "not simulated; use curves of one stage"
            )
        if self.max_batch_tokens < 1:
            raise ConfigError(f"{self.name}: max_batch_tokens is {self.max_batch_tokens}")
        if self.batch_policy not in POLICIES:
            known = ", ".join(POLICIES)
            raise ConfigError(
                f"{self.name}: batch_policy {self.batch_policy!r}: use one of {known}"
            )


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Links of bytes per microsecond (1 GB/s is 1000); concurrent flows share them max-min fairly.

    Workers stand on nodes. A flow inside a node takes the node's inner link; one between nodes
    takes the sender's egress, the fabric where that is bounded, and the receiver's ingress.
    """

    worker_nodes: tuple[int, ...] = ()
    """The node of each worker, in group order; empty: every worker is a node of its own."""
    inner_bytes_per_us: float = 450_000.0
    egress_bytes_per_us: float = 50_000.0
    """Of one node."""
    ingress_bytes_per_us: float = 50_000.0
    fabric_bytes_per_us: float = math.inf
    """Of all flows between nodes together."""
    latency_us: float = 10.0
    """Fixed part of each transfer; with layers on their own, of the last one's."""

    def __post_init__(self) -> None:
        for name in ("inner", "egress", "ingress", "fabric"):
            if not getattr(self, f"{name}_bytes_per_us") > 0:
                raise ConfigError(f"topology: {name}_bytes_per_us must be above 0")
        if not 0 <= self.latency_us < math.inf:
            raise ConfigError(f"topology: latency_us is {self.latency_us}; 0 or more")


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """What moves from prefill to decode for each request, and when."""

    token_nbytes: int
    """K/V bytes of one token, all layers."""
    num_layers: int = 1
    schedule: Schedule = Schedule.LAYER
    """LAYER: each layer may leave once it is computed; else all leave after the prompt."""
    only_missing: bool = True
    """Blocks that the decode worker holds already stay where they are."""


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Between the parts of a deployment, in microseconds."""

    gateway_in_us: float = 0.0
    gateway_out_us: float = 0.0
    control_us: float = 0.0
    """One message; a handoff takes several before its first byte."""
    heartbeat_us: float = 200_000.0
    """How often workers tell the router how they are; one that had no room is asked again then."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A worker dies and loses its K/V; its requests start again elsewhere, or wait for it."""

    worker: int
    """Number over all groups, in order."""
    at_us: float
    down_us: float


class Spill(msgspec.Struct, frozen=True, kw_only=True):
    """Splitwise's mixed pool: who takes over when a dedicated queue is too long (0x08G)."""

    pending_tokens: int = 8192
    """Prompt tokens that wait at the chosen worker, above which another one is borrowed."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a fast simulation depends on beside the workload."""

    groups: tuple[WorkerGroup, ...]
    handoff: Handoff | None = None
    """Needed as soon as there are prefill workers."""
    topology: Topology = Topology()
    route: str = "shortest_queue"
    """A name of `policy.routing.ROUTE_POLICIES`, "round_robin", or "pending_tokens"."""
    balancing_threshold: float = 2.0
    delays: Delays = Delays()
    spill: Spill | None = None
    failures: tuple[Failure, ...] = ()
    max_waiting: int = 0
    """Requests that may wait over all workers; 0: no bound, nothing is refused."""
    ttft_slo_us: float = 0.0
    """Early rejection: a request predicted to miss it is refused before prefill; 0: never."""
    tpot_slo_us: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        roles = {group.role for group in self.groups}
        if not self.groups:
            raise ConfigError("deployment: no workers; give at least one group")
        if (Role.PREFILL in roles) != (Role.DECODE in roles):
            raise ConfigError("deployment: prefill and decode workers need each other")
        if Role.PREFILL in roles and self.handoff is None:
            raise ConfigError("deployment: prefill workers need a handoff (bytes of a token)")
        nodes = self.topology.worker_nodes
        if nodes and len(nodes) != self.num_workers:
            raise ConfigError(
                f"topology.worker_nodes names {len(nodes)} workers of {self.num_workers}"
            )
        for failure in self.failures:
            if not 0 <= failure.worker < self.num_workers:
                raise ConfigError(f"failure of worker {failure.worker}: there is no such worker")

    @property
    def num_workers(self) -> int:
        """Over all groups."""
        return sum(group.num_workers for group in self.groups)

    @property
    def num_gpus(self) -> int:
        """Every GPU provisioned, idle or not: the denominator of goodput per GPU."""
        return sum(group.num_workers * group.gpus for group in self.groups)
