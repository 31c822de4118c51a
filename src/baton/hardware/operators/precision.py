"""How operands are stored and multiplied, and the least time that a machine needs for that."""

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from baton.errors import ConfigError
from baton.hardware.operators.columns import Floats
from baton.hardware.system import System

LAUNCH_US = 3.0
"""Fixed part of every kernel's roofline: what the system files of AIConfigurator assume."""
MEMORY_EFFICIENCY = 0.8
"""Of the published bandwidth, for operators that no table has (the same files)."""


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """Of a linear layer's weights."""

    name: str
    weight_nbytes: float
    """Of one parameter, with the scales of its group."""
    flops: str
    """Which of a system's peaks it runs at; where the system lacks it, 16-bit maths is used."""
    tables: tuple[str, ...]
    """Names under which tables have it, best first."""


PRECISIONS = {
    one.name: one
    for one in (
        Precision(name="bfloat16", weight_nbytes=2.0, flops="bfloat16", tables=("bfloat16",)),
        Precision(name="fp8", weight_nbytes=1.0, flops="fp8", tables=("fp8", "fp8_block")),
        Precision(name="fp8_block", weight_nbytes=1.0, flops="fp8", tables=("fp8_block", "fp8")),
        Precision(name="int8", weight_nbytes=1.0, flops="int8", tables=("fp8", "fp8_block")),
        Precision(name="nvfp4", weight_nbytes=0.5625, flops="fp4", tables=("fp8", "fp8_block")),
        Precision(name="mxfp4", weight_nbytes=0.53125, flops="fp4", tables=("fp8", "fp8_block")),
        Precision(name="int4_wo", weight_nbytes=0.5625, flops="bfloat16", tables=("bfloat16",)),
    )
}
ALIASES = {
    "bf16": "bfloat16",
    "fp16": "bfloat16",
    "float16": "bfloat16",
    "fp4": "nvfp4",
    "int4": "int4_wo",
}


def find_precision(name: str) -> Precision:
    """By name. Raises ConfigError with the known ones."""
    known = PRECISIONS.get(ALIASES.get(name, name))
    if known is None:
        raise ConfigError(f"precision {name!r}: use one of {', '.join([*PRECISIONS, *ALIASES])}")
    return known


def peak_flops(system: System, precision: Precision) -> float:
    """At that precision, or in 16 bits where the machine has no such units."""
    peak = system.flops.get(precision.flops) or system.flops["bfloat16"]
    return float(peak)


def is_native(system: System, precision: Precision) -> bool:
    """Whether the machine multiplies in that precision."""
    return precision.flops in system.flops


def roofline_us(flops: ArrayLike, nbytes: ArrayLike, peak: float, bandwidth: float) -> Floats:
    """The longer of compute and memory, and a launch."""
    compute = np.asarray(flops, np.float64) / peak
    memory = np.asarray(nbytes, np.float64) / bandwidth
    return np.asarray(np.maximum(compute, memory) * 1e6 + LAUNCH_US, np.float64)
