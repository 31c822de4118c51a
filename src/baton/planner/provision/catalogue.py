"""A service from names: a model on machines, with the predictor and prices that are asked for."""

import math
from pathlib import Path

import msgspec

from baton.core.ids import Schedule
from baton.errors import ConfigError
from baton.hardware.instance import instance_of
from baton.hardware.memory import check_utilization
from baton.hardware.model import find_model
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import choose_predictor
from baton.hardware.system import System, find_system
from baton.planner.provision.constants import CATALOGUE, SIMULATOR, Constants, find_constants
from baton.planner.provision.machine import MachineType
from baton.planner.provision.service import Rules, Service
from baton.sim.fast.deployment import Handoff

BYTES_PER_GBIT = 125_000_000.0
US_PER_S = 1e6
W_PER_KW = 1000.0
SYSTEMS = {"a100": "a100_sxm", "h100": "h100_sxm", "h100cap": "h100_sxm_cap"}
"""Machines of the published sets and their GPUs; any other name is a system of the catalogue."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What a service is made from."""

    model: str
    machines: tuple[str, ...]
    constants: str = SIMULATOR.name
    reference: str = ""
    """The machine that a request is compared with alone; empty: a100 if there, else the first."""
    data: Path | None = None
    predictor: str | None = None
    utilization: float = 0.9
    link_gbits: float | None = None
    """Of one whole machine; None: one adapter for each GPU, as the catalogue has it."""
    schedule: Schedule = Schedule.LAYER

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError(
                "--model is missing: a name, such as llama-3.1-70b, or the path of a config.json"
            )
        check_utilization(self.utilization)
        if not self.machines or len(set(self.machines)) != len(self.machines):
            raise ConfigError(f"--machines {','.join(self.machines)!r}: name each type once")
        if self.link_gbits is not None and not 0 < self.link_gbits < math.inf:
            raise ConfigError(
                f"--link-gbits {self.link_gbits:g}: Gbit/s of one machine, a finite number above 0"
            )


def build_service(choice: Choice, rules: Rules | None = None) -> Service:
    """Raises ConfigError for a name that is not known, or a model that does not fit a machine."""
    model = find_model(choice.model)
    systems = {name: find_system(SYSTEMS.get(name, name)) for name in _needed(choice)}
    constants = _constants(choice.constants, systems)
    machines = {
        name: _machine(name, model, system, constants, choice) for name, system in systems.items()
    }
    return Service(
        machines=machines,
        handoff=Handoff(
            token_nbytes=int(model.token_nbytes),
            num_layers=model.num_layers,
            schedule=choice.schedule,
        ),
        constants=constants.name,
        cost_unit=constants.cost_unit,
        power_unit=constants.power_unit,
        reference=_reference(choice),
        rules=rules or Rules(),
    )


def _needed(choice: Choice) -> list[str]:
    return list(dict.fromkeys([*choice.machines, _reference(choice)]))


def _reference(choice: Choice) -> str:
    """Splitwise's contract compares with a DGX-A100."""
    return (
        choice.reference
        or ("a100" if set(choice.machines) <= set(SYSTEMS) else "")
        or (choice.machines[0])
    )


def _constants(name: str, systems: dict[str, System]) -> Constants:
    if name != CATALOGUE:
        constants = find_constants(name)
        for machine in systems:
            constants.check_covers(machine)
        return constants
    for machine, system in systems.items():
        if system.price_per_hour is None or not system.power_w:
            raise ConfigError(
                f"constants 'catalogue': {machine} has no price or power; give a system file with "
                "price_per_hour and power_w, or use a set that knows it"
            )
    return Constants(
        name=CATALOGUE,
        source="; ".join(f"{one}: {system.price_source}" for one, system in systems.items()),
        cost_unit="$/h",
        power_unit="kW of GPU boards",
        cost={
            one: (system.price_per_hour or 0.0) * system.gpus_per_node
            for one, system in systems.items()
        },
        power={
            one: system.power_w * system.gpus_per_node / W_PER_KW for one, system in systems.items()
        },
    )


def _machine(
    name: str, model: ModelShape, system: System, constants: Constants, choice: Choice
) -> MachineType:
    parallel = Parallel(tp=system.gpus_per_node)
    link_gbits = choice.link_gbits
    if link_gbits is None:
        link_gbits = system.inter_bytes_per_s * system.gpus_per_node / BYTES_PER_GBIT
    source = choose_predictor(model, system, data=choice.data, name=choice.predictor)
    instance = instance_of(
        source.predictor, model, system, parallel, utilization=choice.utilization
    )
    return MachineType(
        name=name,
        curves=instance.curves,
        kv_tokens=instance.kv_tokens,
        gpus=instance.gpus,
        link_bytes_per_us=link_gbits * BYTES_PER_GBIT / US_PER_S,
        cost=constants.cost[name],
        power=constants.power[name],
        step_overhead_us=instance.step_overhead_us,
        sequence_overhead_us=instance.sequence_overhead_us,
        warning=source.warning,
    )
