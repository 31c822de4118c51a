"""A measured `baton profile` as step curves, its machine as a system and its model as a shape.

The curves equal the profile's own step for every chunk that begins on the profile's grid of prefill
queries, as schedulers cut them; one that begins elsewhere differs by less than one block of it.
"""

import os
from pathlib import Path

from baton.config import BatonConfig
from baton.hardware.curves import Domain, Grid, Line, StepCurves, StepSide
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.serving import ServingFacts
from baton.hardware.system import System
from baton.policy.service_profile import WORK_TERMS, ServiceProfile, StepModel
from baton.profile_file import load_profile

THIS = "this"
_MOST_ROWS = 4096
"""Rows of one chunk up to which blocks are exact."""
_DENSE = 1.04
"""Knots of a square, apart by this ratio: within 0.02 % of it."""


class ProfilePredictor:
    """One model on the machine that measured it."""

    name = "profile"

    def __init__(self, profile: ServiceProfile | Path) -> None:
        self.profile = load_profile(profile) if isinstance(profile, Path) else profile
        self.model, self.system = model_of(self.profile), system_of(self.profile)

    def lacks(self, model: ModelShape, system: System) -> str | None:
        """Why it has nothing for a model and system, or None."""
        if system.name != THIS:
            return f"it was measured on {self.system.source}: use --system {THIS}"
        for field in ("num_layers", "model_dim", "ffn_dim", "num_heads", "num_kv_heads"):
            ours, theirs = getattr(self.model, field), getattr(model, field)
            if ours != theirs:
                return f"it has {self.model.name} with {field} {ours}, not {theirs}"
        return None

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """Raises MissingCell for another model, machine or more than one engine."""
        reason = self.lacks(model, system)
        if reason is None and parallel.gpus > 1:
            reason = f"it was measured with one engine, not with {parallel}"
        if reason:
            raise MissingCell(f"{self.name}: {reason}")
        return curves_of(self.profile)

    def serving(self, model: ModelShape, system: System, parallel: Parallel) -> ServingFacts:
        """What serving adds to a step, measured; K/V as a worker reserves it unless told."""
        overhead = self.profile.overhead
        nbytes = BatonConfig().worker.kv_nbytes
        return ServingFacts(
            kv_tokens=max(1, nbytes // self.profile.subject.shape.layout.bytes_per_token),
            step_overhead_us=overhead.step_us,
            sequence_overhead_us=overhead.sequence_us,
            source=f"worker.kv_nbytes = {nbytes}, the default; overheads of the profile",
        )


def curves_of(profile: ServiceProfile) -> StepCurves:
    """Engine time without overhead and without a busy neighbour."""
    steps = profile.steps
    work = dict(zip((name for name, _ in WORK_TERMS), steps.work_us, strict=True))
    side = StepSide(
        step_us=steps.base_us,
        rows=_rows(steps),
        prefill_attention=_blocks(steps, work["grid_pairs"], work["grid_blocks"]),
        chunk_us=work["items"],
        gathered_us=work["gathered_tokens"],
        decode_row_us=work["decode_rows"] + work["items"],
        decode_token_us=work["decode_tokens"],
    )
    subject = profile.subject
    return StepCurves(
        sides=(side,),
        source=f"measured profile of {subject.identity.model} on {_machine(profile)}, "
        f"{profile.measured_at}, points {profile.points_digest[:12]}",
        domain=Domain(
            max_rows=steps.max_rows,
            max_visible=steps.max_visible,
            max_context=steps.max_visible,
        ),
    )


def model_of(profile: ServiceProfile) -> ModelShape:
    """The shape that the profile counts its work from."""
    shape, layout = profile.subject.shape, profile.subject.shape.layout
    width = shape.num_query_heads * layout.head_dim
    per_layer = 2 * shape.model_dim * width + 3 * shape.model_dim * shape.ffn_dim
    per_layer += 2 * shape.model_dim * layout.num_kv_heads * layout.head_dim
    weights = profile.subject.weight_nbytes / shape.nbytes_per_weight
    head = weights - layout.num_layers * per_layer
    return ModelShape(
        name=profile.subject.identity.model,
        num_layers=layout.num_layers,
        model_dim=shape.model_dim,
        ffn_dim=shape.ffn_dim,
        num_heads=shape.num_query_heads,
        num_kv_heads=layout.num_kv_heads,
        head_dim=layout.head_dim,
        vocab_size=max(1, round(head / shape.model_dim)),
        ties_embeddings=True,
        weight_nbytes_per_param=float(shape.nbytes_per_weight),
        kv_nbytes_per_scalar=layout.row_nbytes / (2 * layout.num_kv_heads * layout.head_dim),
        source=f"profile of {profile.measured_at}",
    )


def system_of(profile: ServiceProfile) -> System:
    """The measured machine: one "GPU" is one engine with its threads."""
    hardware = profile.subject.hardware
    copy_bytes_per_s = profile.transfer.bytes_per_us * 1e6
    return System(
        name=THIS,
        flops={profile.subject.dtype: profile.roofline.flops_per_us * 1e6},
        memory_bytes_per_s=profile.roofline.nbytes_per_us * 1e6,
        memory_nbytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus_per_node=max(1, hardware.num_cores // hardware.num_threads),
        intra_bytes_per_s=copy_bytes_per_s,
        inter_bytes_per_s=copy_bytes_per_s,
        memory_efficiency=1.0,
        kernel_us=0.0,
        link_us=profile.transfer.operation_us,
        reserved_nbytes=0,
        source=_machine(profile),
    )


def _machine(profile: ServiceProfile) -> str:
    hardware = profile.subject.hardware
    return f"{hardware.num_cores} cores of {hardware.cpu_model}"


def _rows(steps: StepModel) -> Line:
    """Its segments as one line, flat up to the rows that every linear layer is padded to."""
    knots = sorted({*steps.grid.row_knots, steps.grid.min_rows})
    knots = [0, *(knot for knot in knots if knot >= max(1, steps.grid.min_rows))]
    knots.append(knots[-1] + 64)

    def value(num_rows: int) -> float:
        segments = steps.grid.segments(num_rows)
        return sum(cost * rows for cost, rows in zip(steps.row_us, segments, strict=True))

    return Line(knots=tuple(map(float, knots)), values_us=tuple(value(knot) for knot in knots))


def _blocks(steps: StepModel, pair_us: float, block_us: float) -> Grid:
    """Of a chunk of n rows after v: blocks of whole queries by all keys, linear in v."""
    size = steps.grid.query_rows
    lengths = (0.0, 1024.0)
    if not size:
        # One block of n by n + v; its square is the only part that is not exact.
        knots = _dense_knots()
        values = tuple(tuple(pair_us * n * (n + v) + block_us for v in lengths) for n in knots)
        return Grid(x=knots, y=lengths, values_us=values)

    def value(num_rows: int, visible: float) -> float:
        padded = -(-num_rows // size) * size
        pairs = padded * visible + padded * (padded + size) / 2
        return pair_us * pairs + block_us * padded / size

    # Flat within a block: a knot at its first and at its last row.
    edges = [row for end in range(size, _MOST_ROWS + 1, size) for row in (end - size + 1, end)]
    edges = sorted({*edges, _MOST_ROWS + size * 16})
    return Grid(
        x=tuple(map(float, edges)),
        y=lengths,
        values_us=tuple(tuple(value(n, v) for v in lengths) for n in edges),
    )


def _dense_knots() -> tuple[float, ...]:
    knots, at = list(range(1, 26)), 25.0
    while at < 8 * _MOST_ROWS:
        at *= _DENSE
        knots.append(round(at))
    return tuple(float(one) for one in sorted(set(knots)))
