"""What a fleet serves and by which rules; from both comes a deployment that can be simulated."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from baton.core.ids import Role
from baton.errors import ConfigError
from baton.hardware.curves import StepCurves
from baton.planner.provision.fleet import Fleet
from baton.planner.provision.machine import MachineType
from baton.sim.fast.deployment import Deployment, Handoff, Spill, Topology, WorkerGroup

PROMPT_TOKENS = 2048
"""Where Splitwise's prompt throughput peaks, for its models on its machines (0x08H)."""
MAX_SEQUENCES = 512


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Splitwise's scheduling: JSQ over pending tokens, FCFS prompts, tokens as memory allows."""

    prompt_policy: str = "whole_hybrid"
    """Whole prompts in order up to the cap, one above it alone, and decodes beside them, which a
    prompt machine has only while it is borrowed."""
    token_policy: str = "whole_hybrid"
    mixed_policy: str = "whole_hybrid"
    """Of a fleet without a split."""
    max_batch_tokens: int = PROMPT_TOKENS
    max_num_seqs: int = MAX_SEQUENCES
    route: str = "pending_tokens"
    mixed_route: str = "shortest_queue"
    """Of a fleet without a split: fewest prompt tokens that wait, then fewest requests. What is
    decoded there says little about when the next prompt starts."""
    spill: Spill | None = field(default_factory=Spill)
    """None: every machine keeps its role."""
    keeps_prefixes: bool = False


@dataclass(frozen=True, kw_only=True)
class Service:
    """One model on machines of several types, and the constants that price them."""

    machines: Mapping[str, MachineType]
    handoff: Handoff
    constants: str
    """Name of the set of prices and powers."""
    cost_unit: str
    power_unit: str
    reference: str
    """The machine type on which a request runs alone, for slowdowns."""
    alone: StepCurves | None = None
    """What a step of it costs there, if not the machine's own curves."""
    rules: Rules = Rules()
    latency_us: float = 10.0

    def __post_init__(self) -> None:
        self.machine(self.reference)

    def machine(self, name: str) -> MachineType:
        """By name."""
        if name not in self.machines:
            raise ConfigError(
                f"machine {name!r} is not known here; known are {', '.join(self.machines)}"
            )
        return self.machines[name]

    @property
    def reference_curves(self) -> StepCurves:
        """What slowdowns are measured against."""
        return self.alone or self.machine(self.reference).curves

    def cost(self, fleet: Fleet) -> float:
        """Of all machines, idle or not."""
        return sum(num * self.machine(name).cost for name, num in fleet.machines.items())

    def power(self, fleet: Fleet) -> float:
        """Provisioned for all machines."""
        return sum(num * self.machine(name).power for name, num in fleet.machines.items())

    def design(self, fleet: Fleet) -> str:
        """Splitwise's name: AA, HA, HHcap, or the machine's letter for a fleet without a split."""
        if fleet.is_split:
            return self.machine(fleet.prompt).letter + self.machine(fleet.token).letter
        return f"{self.machine(fleet.mixed).letter} mixed"

    def deployment(self, fleet: Fleet) -> Deployment:
        """Every machine is a node; a pair of types talks at the rate of the slower link."""
        rules, pools = self.rules, []
        if fleet.is_split:
            pools.append((Role.PREFILL, fleet.prompt, fleet.num_prompt, rules.prompt_policy))
            pools.append((Role.DECODE, fleet.token, fleet.num_token, rules.token_policy))
        else:
            pools.append((Role.MIXED, fleet.mixed, fleet.num_mixed, rules.mixed_policy))
        link = min(self.machine(name).link_bytes_per_us for name in fleet.machines)
        return Deployment(
            groups=tuple(self._group(*pool) for pool in pools),
            handoff=self.handoff if fleet.is_split else None,
            topology=Topology(
                egress_bytes_per_us=link, ingress_bytes_per_us=link, latency_us=self.latency_us
            ),
            route=rules.route if fleet.is_split else rules.mixed_route,
            spill=rules.spill if fleet.is_split else None,
        )

    def _group(self, role: Role, name: str, num: int, policy: str) -> WorkerGroup:
        machine, rules = self.machine(name), self.rules
        return WorkerGroup(
            name=f"{role} {name}",
            role=role,
            num_workers=num,
            curves=machine.curves,
            kv_tokens=machine.kv_tokens,
            gpus=machine.gpus,
            step_overhead_us=machine.step_overhead_us,
            sequence_overhead_us=machine.sequence_overhead_us,
            batch_policy=policy,
            max_batch_tokens=rules.max_batch_tokens,
            max_num_seqs=rules.max_num_seqs,
            keeps_prefixes=rules.keeps_prefixes,
        )
