"""The step of a model as a sum of operator times: one rank's, over knots of rows and contexts."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from baton.hardware.model import ModelShape
from baton.hardware.operators.collectives import Collectives
from baton.hardware.operators.columns import Floats
from baton.hardware.operators.experts import Experts, ExpertShape
from baton.hardware.operators.folder import TableFolder
from baton.hardware.operators.gemm import Gemms
from baton.hardware.operators.layers import attention_gemms, elementwise_nbytes, ffn_gemms
from baton.hardware.operators.precision import LAUNCH_US, MEMORY_EFFICIENCY, find_precision
from baton.hardware.operators.sharding import Quantisation, Sharding
from baton.hardware.operators.sparse import AttentionLayers
from baton.hardware.system import System

_POWERS = tuple(2.0**i for i in range(16))
_BETWEEN = tuple(1.5 * 2.0**i for i in range(4, 14))
ROW_KNOTS = np.array(sorted((*_POWERS, *_BETWEEN)), np.float64)
CHUNK_KNOTS = np.array([1, 16, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768], np.float64)
VISIBLE_KNOTS = np.array([0, 1024, 4096, 8192, 16384, 32768, 65536], np.float64)
BATCH_KNOTS = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048], np.float64)
CONTEXT_KNOTS = np.array(
    [1, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072], np.float64
)
ROW_TERMS = ("gemm", "moe", "collective", "elementwise")


@dataclass(frozen=True, kw_only=True)
class OperatorTerms:
    """Microseconds of each kind of operator in one pipeline stage of one rank."""

    sharding: Sharding
    rows: dict[str, Floats]
    """Over ROW_KNOTS: rows of this rank, with every other rank as busy."""
    head: Floats
    """Vocabulary head over ROW_KNOTS: sequences of this rank that sample."""
    context: Floats
    """Over CHUNK_KNOTS and VISIBLE_KNOTS."""
    generation: Floats
    """Over BATCH_KNOTS and CONTEXT_KNOTS."""
    num_layers: int
    """Of the stage."""
    source: str
    extrapolated: tuple[str, ...] = field(default=())
    """What was not measured on this system in this shape."""


def operator_terms(
    folder: TableFolder,
    system: System,
    model: ModelShape,
    sharding: Sharding,
    quantisation: Quantisation,
) -> OperatorTerms:
    """Compose. Layers are spread evenly over the stages."""
    gemms = Gemms(folder, system, find_precision(quantisation.gemm))
    head = Gemms(folder, system, find_precision("bfloat16"))
    links = Collectives(folder, system)
    attention = AttentionLayers.of(folder, system, model, sharding, quantisation.kv_nbytes)
    experts = _experts(folder, system, model, sharding, quantisation)
    pp = sharding.pp
    rows = {
        "gemm": _gemm_us(gemms, model, sharding) / pp,
        "moe": _moe_us(experts, model, sharding) / pp,
        "collective": _collective_us(links, model, sharding, experts) / pp,
        "elementwise": _elementwise_us(system, model, sharding) / pp,
    }
    chunk, visible = np.meshgrid(CHUNK_KNOTS, VISIBLE_KNOTS, indexing="ij")
    batch, context = np.meshgrid(BATCH_KNOTS, CONTEXT_KNOTS, indexing="ij")
    lacking = _lacking(folder, system, gemms, experts, attention, sharding)
    return OperatorTerms(
        sharding=sharding,
        rows=rows,
        head=head.us(ROW_KNOTS, model.vocab_size / sharding.tp, model.model_dim),
        context=attention.context_us(chunk, visible) / pp,
        generation=attention.generation_us(batch, context) / pp,
        num_layers=-(-model.num_layers // pp),
        source=f"operator tables {folder.path.name} ({sharding}, {quantisation.gemm})",
        extrapolated=lacking,
    )


def _experts(
    folder: TableFolder,
    system: System,
    model: ModelShape,
    sharding: Sharding,
    quantisation: Quantisation,
) -> Experts | None:
    if not model.num_moe_layers:
        return None
    shape = ExpertShape(
        model_dim=model.model_dim,
        expert_dim=model.expert_dim,
        experts_per_token=model.experts_per_token,
        num_experts=model.num_experts,
        tp=sharding.moe_tp,
        ep=sharding.ep,
    )
    return Experts(folder, system, shape, find_precision(quantisation.moe))


def _gemm_us(gemms: Gemms, model: ModelShape, sharding: Sharding) -> Floats:
    total = np.zeros(len(ROW_KNOTS))
    for one in (*attention_gemms(model, sharding), *ffn_gemms(model, sharding)):
        total += one.count * gemms.us(ROW_KNOTS, one.outputs, one.inputs)
    return total


def _moe_us(experts: Experts | None, model: ModelShape, sharding: Sharding) -> Floats:
    if experts is None:
        return np.zeros(len(ROW_KNOTS))
    return np.asarray(model.num_moe_layers * experts.us(ROW_KNOTS * sharding.dp), np.float64)


def _collective_us(
    links: Collectives, model: ModelShape, sharding: Sharding, experts: Experts | None
) -> Floats:
    """All-reduce after attention and after a feed-forward; with attention DP, rows are gathered
    before the experts and their sums scattered after, or sent to their experts and back.
    """
    elements = ROW_KNOTS * model.model_dim
    reduce = links.us("all_reduce", elements, sharding.tp)
    total = model.num_layers * reduce
    total = total + model.num_ffn_layers * reduce
    if experts is None:
        return total
    if sharding.dp == 1:
        return total + model.num_moe_layers * reduce
    width = sharding.width
    gathered = elements * sharding.dp
    gather = links.us("all_gather", gathered, width) + links.us("reduce_scatter", gathered, width)
    sent = elements * min(model.experts_per_token, sharding.ep)
    exchange = 2 * links.us("alltoall", sent, width)
    total = total + model.num_moe_layers * np.minimum(gather, exchange)
    return np.asarray(total, np.float64)


def _elementwise_us(system: System, model: ModelShape, sharding: Sharding) -> Floats:
    nbytes, kernels = elementwise_nbytes(model, sharding)
    speed = system.memory_bytes_per_s * MEMORY_EFFICIENCY
    each = ROW_KNOTS * nbytes / speed * 1e6 + kernels * LAUNCH_US
    return np.asarray(model.num_layers * each, np.float64)


def _lacking(
    folder: TableFolder,
    system: System,
    gemms: Gemms,
    experts: Experts | None,
    attention: AttentionLayers,
    sharding: Sharding,
) -> tuple[str, ...]:
    lacking = []
    if folder.system.name != system.name:
        lacking.append(f"{system.name} has no table: {folder.system.name} by rooflines")
    if not gemms.is_measured:
        lacking.append(f"linear layers in {gemms.precision.name}: {gemms.table} by rooflines")
    if experts is not None and not experts.is_measured:
        lacking.append(f"experts in {experts.precision.name}: nearest mixture by rooflines")
    if not attention.is_measured:
        lacking.append("attention: nearest head shape by rooflines")
    if sharding.width > 8:
        lacking.append(f"collectives over {sharding.width} GPUs: those over 8 by rooflines")
    return tuple(lacking)


def interpolate(knots: Floats, values: Floats, at: ArrayLike) -> Floats:
    """Piecewise linear; beyond the ends the last pieces go on, as step curves do."""
    x = np.asarray(at, np.float64)
    cell = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    share = (x - knots[cell]) / (knots[cell + 1] - knots[cell])
    return np.asarray(
        np.maximum(values[cell] + share * (values[cell + 1] - values[cell]), 0.0), np.float64
    )


def interpolate_grid(
    x_knots: Floats, y_knots: Floats, values: Floats, x: ArrayLike, y: ArrayLike
) -> Floats:
    """Bilinear, with the same ends."""
    at_x, at_y = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64))
    i = np.clip(np.searchsorted(x_knots, at_x, side="right") - 1, 0, len(x_knots) - 2)
    j = np.clip(np.searchsorted(y_knots, at_y, side="right") - 1, 0, len(y_knots) - 2)
    a = (at_x - x_knots[i]) / (x_knots[i + 1] - x_knots[i])
    b = (at_y - y_knots[j]) / (y_knots[j + 1] - y_knots[j])
    low = values[i, j] + b * (values[i, j + 1] - values[i, j])
    high = values[i + 1, j] + b * (values[i + 1, j + 1] - values[i + 1, j])
    return np.asarray(np.maximum(low + a * (high - low), 0.0), np.float64)
