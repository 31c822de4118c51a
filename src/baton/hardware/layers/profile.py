"""Everything that was measured of one model's layers on one GPU, cut by tensor parallelism."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from baton.errors import ConfigError
from baton.hardware.layers.attention import Attention, read_attention
from baton.hardware.layers.experts import ExpertTable, read_experts
from baton.hardware.layers.files import number, read_rows
from baton.hardware.layers.points import Points
from baton.hardware.layers.skew import Skew, read_skew

_NEEDED = {"dense": ("qkv_proj", "o_proj", "layernorm"), "per_sequence": ("lm_head",)}


@dataclass(frozen=True, kw_only=True)
class LayerProfile:
    """Times of one GPU; `dense` by rows of the step, `per_sequence` by rows that are sampled."""

    folder: Path
    dense: dict[str, Points]
    per_sequence: dict[str, Points]
    attention: Attention
    skew: Skew | None
    experts: ExpertTable | None


@lru_cache(maxsize=16)
def read_profile(folder: Path) -> LayerProfile:
    """Raises ConfigError that names the file and what is wrong with it.

    Experts are measured whole, so that a cut of attention's heads has those of the uncut model.
    """
    experts = read_experts(folder / "moe.csv") or read_experts(folder.parent / "tp1" / "moe.csv")
    return LayerProfile(
        folder=folder,
        dense=_layers(folder, "dense", "tokens"),
        per_sequence=_layers(folder, "per_sequence", "sequences"),
        attention=read_attention(folder / "attention.csv"),
        skew=read_skew(folder / "skew_fit.csv"),
        experts=experts,
    )


def _layers(folder: Path, table: str, axis: str) -> dict[str, Points]:
    path = folder / f"{table}.csv"
    measured: dict[str, dict[float, float]] = {}
    for row in read_rows(path):
        layer = measured.setdefault(row.get("layer") or "", {})
        layer[number(path, row, axis)] = number(path, row, "time_us")
    for name in _NEEDED[table]:
        if name not in measured:
            raise ConfigError(f"{path}: no rows of the layer {name}")
    return {name: Points(points, f"{path}: {name}") for name, points in measured.items()}
