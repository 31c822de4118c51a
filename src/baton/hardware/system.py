"""Machines by name from published data sheets, and any machine from a file of the same facts."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from baton.errors import ConfigError
from baton.hardware.nearest import nearest

_POSITIVE = (
    "memory_bytes_per_s",
    "memory_nbytes",
    "gpus_per_node",
    "intra_bytes_per_s",
    "inter_bytes_per_s",
)


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of GPU, and how such GPUs are joined. Rates are of one GPU, links one way."""

    name: str
    flops: dict[str, float]
    """Dense peak by the type that is multiplied: bfloat16, fp8, int8, fp4."""
    memory_bytes_per_s: float
    memory_nbytes: int
    gpus_per_node: int = 8
    gpus_per_domain: int = 0
    """GPUs that reach each other at `intra_bytes_per_s`, over nodes too; 0: those of a node."""
    intra_bytes_per_s: float
    inter_bytes_per_s: float
    pcie_bytes_per_s: float = 32e9
    power_w: float = 0.0
    """Of the board at its limit; 0: not known."""
    price_per_hour: float | None = None
    """US dollars for one GPU, of the set that `price_source` names."""
    price_source: str = ""
    memory_efficiency: float = 0.8
    """Share of the peak bandwidth that kernels reach."""
    kernel_us: float = 3.0
    """Least time of one kernel on memory."""
    link_us: float = 10.0
    """Latency of one message between two GPUs."""
    reserved_nbytes: int = 2 * 2**30
    """Beside weights, K/V and activations: context, libraries, communication buffers.

    2 GiB: what vLLM on an H200 leaves unexplained (945,029 tokens of Llama-3.1-8B in FP8, in the
    profile that ai-dynamo ships), and DistServe's capacities of OPT on an A100.
    """
    source: str = ""

    def __post_init__(self) -> None:
        for field in _POSITIVE:
            if not getattr(self, field) > 0:
                raise ConfigError(f"{self.name}: {field} is {getattr(self, field)}; above 0")
        if not self.flops or not all(value > 0 for value in self.flops.values()):
            raise ConfigError(f"{self.name}: flops is {self.flops}; name a rate above 0 by type")
        if not 0 < self.memory_efficiency <= 1:
            raise ConfigError(
                f"{self.name}: memory_efficiency is {self.memory_efficiency}; above 0 and up to 1"
            )

    @property
    def domain_gpus(self) -> int:
        """GPUs that the fast links join."""
        return self.gpus_per_domain or self.gpus_per_node

    def link_bytes_per_s(self, num_gpus: int) -> float:
        """Between so many GPUs of one instance: the slowest link that they need."""
        return self.intra_bytes_per_s if num_gpus <= self.domain_gpus else self.inter_bytes_per_s

    def flops_of(self, weight_nbytes_per_param: float) -> tuple[str, float]:
        """The type that weights of a width multiply in here, and its peak."""
        wanted = ["fp4"] if weight_nbytes_per_param < 0.75 else []
        if 0.75 <= weight_nbytes_per_param <= 1.25:
            wanted = ["fp8", "int8"]
        for dtype in (*wanted, "bfloat16"):
            if dtype in self.flops:
                return dtype, self.flops[dtype]
        dtype = next(iter(self.flops))
        return dtype, self.flops[dtype]


class _Systems(Mapping[str, System]):
    """Read from the package's table when first asked for."""

    def __getitem__(self, name: str) -> System:
        return _systems()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_systems())

    def __len__(self) -> int:
        return len(_systems())


SYSTEMS: Mapping[str, System] = _Systems()


def find_system(name: str | Path) -> System:
    """By name, or from a YAML file with the fields of AIConfigurator's systems.

    "this" is the machine of a measured profile: `profile_predictor.system_of` makes it. Raises
    ConfigError that lists the nearest names.
    """
    path = Path(name)
    if path.suffix in {".yaml", ".yml"}:
        from baton.hardware.system_file import read_system

        return read_system(path)
    key = _key(str(name))
    if key == "this":
        raise ConfigError("system 'this' needs the profile of this machine: --profile FILE")
    if key not in _names():
        close = ", ".join(nearest(str(name), _names()))
        raise ConfigError(
            f"system {str(name)!r} is not known; nearest: {close}; or give the path of a YAML file"
        )
    return SYSTEMS[_names()[key]]


def system_names() -> dict[str, list[str]]:
    """Every name with its aliases."""
    return {fact["name"]: list(fact.get("aliases", ())) for fact in _facts()}


@cache
def _facts() -> tuple[dict[str, Any], ...]:
    text = (files("baton.hardware") / "facts" / "systems.json").read_text()
    return tuple(json.loads(text))


@cache
def _systems() -> dict[str, System]:
    known = System.__struct_fields__
    return {
        fact["name"]: System(**{key: value for key, value in fact.items() if key in known})
        for fact in _facts()
    }


@cache
def _names() -> dict[str, str]:
    return {_key(one): name for name, others in system_names().items() for one in (name, *others)}


def _key(name: str) -> str:
    return name.lower().replace("-", "_").removeprefix("dgx_").removeprefix("nvidia_")
