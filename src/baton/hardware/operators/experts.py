"""Mixtures of experts by the rows that enter them."""

from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from baton.hardware.operators.columns import Columns, Floats
from baton.hardware.operators.folder import TableFolder
from baton.hardware.operators.precision import Precision, find_precision, peak_flops, roofline_us
from baton.hardware.operators.surface import Surface
from baton.hardware.system import System

_ROUTING = "power_law_1.2"
"""Skewed, as real routers are; tables have it beside the balanced one."""


class ExpertShape(msgspec.Struct, frozen=True, kw_only=True):
    """A mixture and how it is split."""

    model_dim: int
    expert_dim: int
    experts_per_token: int
    num_experts: int
    tp: int = 1
    ep: int = 1

    @property
    def local_dim(self) -> float:
        """Width of an expert on one GPU."""
        return self.expert_dim / self.tp

    def key(self) -> tuple[int, int, int, int]:
        """What tables are ordered by."""
        return self.model_dim, self.expert_dim, self.experts_per_token, self.num_experts


def experts_roofline_us(
    rows: ArrayLike, shape: ExpertShape, precision: Precision, system: System
) -> Floats:
    """Of one GPU: the experts that some row chose are read once each."""
    t = np.asarray(rows, np.float64)
    local = shape.num_experts / shape.ep
    miss = 1.0 - shape.experts_per_token / shape.num_experts
    touched = local * (1.0 - miss**t)
    weights = 3 * shape.model_dim * shape.local_dim
    pairs = t * shape.experts_per_token / shape.ep
    nbytes = touched * weights * precision.weight_nbytes + 4 * t * shape.model_dim
    peak = peak_flops(system, precision)
    return roofline_us(2 * pairs * weights, nbytes, peak, system.memory_bytes_per_s)


_FAMILIES = {"bfloat16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8"}
"""Engines take the quickest kernel that fits the weights; tables list 8-bit ones by scaling."""
_Index = dict[tuple[str, tuple[int, int, int, int], int, int], np.ndarray]


@lru_cache(maxsize=16)
def _index(folder: TableFolder) -> tuple[Columns, _Index]:
    """Rows of each (type, mixture, tp, ep), routed as real routers do where that was measured."""
    columns = folder.columns("moe")
    names = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    numbers = np.stack([columns.numbers(name).astype(int) for name in names], axis=1)
    kinds, routing = columns.texts("moe_dtype"), columns.texts("distribution")
    groups: dict[tuple[str, tuple[int, int, int, int], int, int], list[int]] = {}
    for row in np.flatnonzero(routing == _ROUTING):
        a, b, c, d, tp, ep = (int(one) for one in numbers[row])
        family = _FAMILIES.get(str(kinds[row]), str(kinds[row]))
        groups.setdefault((family, (a, b, c, d), tp, ep), []).append(int(row))
    return columns, {key: np.array(rows) for key, rows in groups.items()}


@lru_cache(maxsize=256)
def _surface(
    folder: TableFolder, kind: str, shape: tuple[int, int, int, int], tp: int, ep: int
) -> Surface:
    columns, index = _index(folder)
    rows = index[kind, shape, tp, ep]
    tokens = columns.numbers("num_tokens")[rows]
    measured = columns.numbers("latency_ms")[rows] * 1e3
    mixture = ExpertShape(
        model_dim=shape[0],
        expert_dim=shape[1],
        experts_per_token=shape[2],
        num_experts=shape[3],
        tp=tp,
        ep=ep,
    )
    roof = experts_roofline_us(tokens, mixture, find_precision(kind), folder.system)
    return Surface.of_points((tokens,), measured / roof)


class Experts:
    """Times of one mixture on one GPU; a shape that was not measured keeps the nearest's factor."""

    def __init__(
        self, folder: TableFolder, system: System, shape: ExpertShape, precision: Precision
    ) -> None:
        self.system, self.shape, self.precision = system, shape, precision
        self._family = _FAMILIES[precision.tables[0]]
        kind, near, tp, ep = self._nearest(folder)
        self._surface = _surface(folder, kind, near, tp, ep)
        self.is_measured = (
            folder.system.name == system.name
            and kind == self._family
            and precision.name in _FAMILIES
            and (near, tp, ep) == (shape.key(), shape.tp, shape.ep)
        )

    def _nearest(self, folder: TableFolder) -> tuple[str, tuple[int, int, int, int], int, int]:
        order = {self._family: 0, "bfloat16": 1}
        asked = (*self.shape.key(), self.shape.tp, self.shape.ep)

        def distance(key: tuple[str, tuple[int, int, int, int], int, int]) -> tuple[float, int]:
            kind, near, tp, ep = key
            logs = np.abs(np.log(np.array((*near, tp, ep)) / np.array(asked)))
            return float(logs.sum()) + 0.3 * order.get(kind, 9), order.get(kind, 9)

        return min(_index(folder)[1], key=distance)

    def us(self, rows: ArrayLike) -> Floats:
        """Of so many rows over all GPUs that share the mixture."""
        roof = experts_roofline_us(rows, self.shape, self.precision, self.system)
        return np.asarray(self._surface.factor(rows) * roof, np.float64)
