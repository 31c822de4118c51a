"""A machine from a YAML file with the fields of AIConfigurator's system files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baton.errors import ConfigError
from baton.hardware.system import System

_FLOPS = "_tc_flops"


def read_system(path: Path) -> System:
    """Raises ConfigError that names the file and the field.

    Of our own there may be `gpu.price_per_hour`, in US dollars.
    """
    found = _load(path)
    gpu, node = _section(path, found, "gpu"), _section(path, found, "node")
    misc = found.get("misc")
    reserved = misc.get("other_mem", 2 * 2**30) if isinstance(misc, Mapping) else 2 * 2**30
    return System(
        name=path.stem,
        flops={
            key.removesuffix(_FLOPS): _number(path, gpu, key) for key in gpu if key.endswith(_FLOPS)
        },
        memory_bytes_per_s=_number(path, gpu, "mem_bw"),
        memory_nbytes=int(_number(path, gpu, "mem_capacity")),
        gpus_per_node=int(_number(path, node, "num_gpus_per_node")),
        gpus_per_domain=int(_number(path, node, "num_gpus_per_rack", 0)),
        intra_bytes_per_s=_number(path, node, "intra_node_bw"),
        inter_bytes_per_s=_number(path, node, "inter_node_bw"),
        pcie_bytes_per_s=_number(path, node, "pcie_bw", 32e9),
        power_w=_number(path, gpu, "power", 0),
        price_per_hour=_number(path, gpu, "price_per_hour") if "price_per_hour" in gpu else None,
        price_source=str(path),
        memory_efficiency=_number(path, gpu, "mem_bw_empirical_scaling_factor", 0.8),
        kernel_us=_number(path, gpu, "mem_empirical_constant_latency", 3e-6) * 1e6,
        link_us=_number(path, node, "p2p_latency", 1e-5) * 1e6,
        reserved_nbytes=int(reserved),
        source=str(path),
    )


def _load(path: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ConfigError(f"{path}: YAML needs pyyaml: pip install 'kvbaton[plan]'") from error
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the system: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path}: a system has the sections gpu and node")
    return found


def _section(path: Path, found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = found.get(name)
    if not isinstance(section, Mapping):
        raise ConfigError(f"{path}: the section {name} is missing")
    return section


def _number(
    path: Path, section: Mapping[str, Any], key: str, default: float | None = None
) -> float:
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{path}: {key} is {value!r}; a number is needed")
    return float(value)
