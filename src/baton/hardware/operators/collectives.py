"""What GPUs exchange: all-reduce, all-gather, reduce-scatter, all-to-all."""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from baton.hardware.operators.columns import Floats
from baton.hardware.operators.folder import TableFolder
from baton.hardware.operators.surface import Surface
from baton.hardware.system import System

_NBYTES = 2.0
"""Activations travel in 16 bits."""
_LATENCY_US = 10.0
"""Fixed part of a collective's roofline (the system files of AIConfigurator)."""
_SHARES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
"""Times that the data pass a link."""


def collective_roofline_us(
    operation: str, elements: ArrayLike, num_gpus: ArrayLike, bytes_per_s: float
) -> Floats:
    """By ring: (n - 1) / n of the data over each link, twice for an all-reduce."""
    n = np.asarray(num_gpus, np.float64)
    nbytes = np.asarray(elements, np.float64) * _NBYTES * _SHARES[operation] * (n - 1) / n
    return np.asarray(nbytes / bytes_per_s * 1e6 + _LATENCY_US, np.float64)


@lru_cache(maxsize=64)
def collective_surface(folder: TableFolder, operation: str) -> Surface:
    """Over (GPUs, elements): NCCL, or for an all-reduce the quicker of NCCL and the custom one."""
    columns = folder.columns("nccl", "nccl")
    chosen = (columns.texts("op_name") == operation) & (columns.texts("nccl_dtype") == "half")
    gpus, elements = columns.numbers("num_gpus")[chosen], columns.numbers("elements")[chosen]
    measured = columns.numbers("latency_ms")[chosen] * 1e3
    if operation == "all_reduce" and folder.find("custom_allreduce", "vllm"):
        custom = folder.columns("custom_allreduce")
        graph = custom.texts("backend") == "vllm_graph"
        gpus = np.concatenate([gpus, custom.numbers("num_gpus")[graph]])
        elements = np.concatenate([elements, custom.numbers("elements")[graph]])
        measured = np.concatenate([measured, custom.numbers("latency_ms")[graph] * 1e3])
    speed = folder.system.intra_bytes_per_s
    roof = collective_roofline_us(operation, elements, gpus, speed)
    return Surface.of_points((gpus, elements), measured / roof)


class Collectives:
    """Between the GPUs of one instance, over the link that joins so many."""

    def __init__(self, folder: TableFolder, system: System) -> None:
        self.folder, self.system = folder, system

    def us(self, operation: str, elements: ArrayLike, num_gpus: int) -> Floats:
        """Nothing for one GPU."""
        if num_gpus <= 1:
            return np.zeros(np.shape(elements))
        speed = self.system.link_bytes_per_s(num_gpus)
        factor = collective_surface(self.folder, operation).factor(num_gpus, elements)
        roof = collective_roofline_us(operation, elements, num_gpus, speed)
        return np.asarray(factor * roof, np.float64)
