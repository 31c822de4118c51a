"""Published prices and powers of machines. Sets disagree, so every result names the one it uses."""

import msgspec

from baton.errors import ConfigError
from baton.hardware.nearest import nearest

GPUS = 8
"""Of a DGX machine."""


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """What one machine costs and draws, by machine name."""

    name: str
    source: str
    cost_unit: str
    power_unit: str
    cost: dict[str, float]
    power: dict[str, float]

    def check_covers(self, machine: str) -> None:
        """Refuse a machine that this set has no price for: sets must never be mixed."""
        if machine not in self.cost:
            raise ConfigError(
                f"constants {self.name!r} have no price of {machine!r}; they know "
                f"{', '.join(self.cost)}: choose those machines, or constants 'catalogue' for all"
            )


SIMULATOR = Constants(
    name="simulator",
    source="splitwise-sim notebooks: $2.21 and $4.76 per GPU-hour, power 24.8 : 44 : 30.8",
    cost_unit="$/h",
    power_unit="units of the simulator",
    cost={"a100": GPUS * 2.21, "h100": GPUS * 4.76, "h100cap": GPUS * 4.76},
    power={"a100": 24.8, "h100": 44.0, "h100cap": 30.8},
)
TDP = Constants(
    name="tdp",
    source="splitwise-sim SKUs: its prices, power as server TDP",
    cost_unit="$/h",
    power_unit="kW",
    cost=SIMULATOR.cost,
    power={"a100": 6.5, "h100": 10.2, "h100cap": 7.14},
)
PAPER = Constants(
    name="paper",
    source="Splitwise (ISCA'24) Table V: in units of one DGX-A100",
    cost_unit="DGX-A100",
    power_unit="DGX-A100",
    cost={"a100": 1.0, "h100": 2.35, "h100cap": 2.35},
    power={"a100": 1.0, "h100": 1.75, "h100cap": 1.23},
)
SETS = {one.name: one for one in (SIMULATOR, TDP, PAPER)}
CATALOGUE = "catalogue"
"""Prices and powers of the catalogue of systems, for machines that no published set knows."""


def find_constants(name: str) -> Constants:
    """By name; an unknown one lists what there is."""
    if name not in SETS:
        known = [*SETS, CATALOGUE]
        raise ConfigError(
            f"constants {name!r} are not known; nearest: {nearest(name, known)[0]}; use one of "
            f"{', '.join(known)}"
        )
    return SETS[name]
