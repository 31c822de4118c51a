"""Operator tables of a data folder as one of the sources: composed terms lowered to curves."""

from pathlib import Path

import numpy as np

from baton.errors import ConfigError
from baton.hardware.curves import Domain, Grid, Line, StepCurves, StepSide
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import PRECISIONS, ModelShape
from baton.hardware.operators.columns import Floats
from baton.hardware.operators.folder import FOLDER, nearest_tables, table_systems
from baton.hardware.operators.sharding import Quantisation, Sharding
from baton.hardware.operators.terms import (
    BATCH_KNOTS,
    CHUNK_KNOTS,
    CONTEXT_KNOTS,
    ROW_KNOTS,
    VISIBLE_KNOTS,
    OperatorTerms,
    operator_terms,
)
from baton.hardware.parallel import Parallel
from baton.hardware.roofline import Efficiency
from baton.hardware.shards import check_parallel
from baton.hardware.system import System

US = 1e6


class OperatorTable:
    """Any model on a system whose operators were timed; on others by rooflines, and marked."""

    name = "operators"

    def __init__(self, data: Path, efficiency: Efficiency | None = None) -> None:
        self.data = data
        if not table_systems(data):
            raise ConfigError(
                f"{data / FOLDER}: no tables of a system; name the folder that holds {FOLDER}/"
            )
        self.efficiency = efficiency or Efficiency()

    def lacks(self, model: ModelShape, system: System) -> str | None:
        """Why it has nothing for a model and system, or None."""
        if "bfloat16" not in system.flops:
            return f"{system.name} has no rate of 16-bit products to compare tables by"
        try:
            _quantisation(model)
        except MissingCell as error:
            return str(error)
        return None

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """One stage. Experts are cut over the TP group, as vLLM does unless told."""
        check_parallel(model, parallel)
        sharding = Sharding(tp=parallel.tp, moe_tp=parallel.tp, pp=parallel.pp)
        terms = operator_terms(
            nearest_tables(self.data, system), system, model, sharding, _quantisation(model)
        )
        hop_us, hop_row_us = self._hop(model, system, parallel)
        head_us = terms.head / parallel.pp
        fixed_us = self.efficiency.host_us / parallel.pp + hop_us + float(head_us[0])
        rows = np.sum(list(terms.rows.values()), axis=0) + ROW_KNOTS * hop_row_us
        side = StepSide(
            step_us=fixed_us,
            rows=_line(ROW_KNOTS, rows),
            prefill_attention=_grid(CHUNK_KNOTS, VISIBLE_KNOTS, terms.context),
            decode_grid=_grid(
                BATCH_KNOTS,
                CONTEXT_KNOTS,
                terms.generation + _more_sequences(head_us)[:, np.newaxis],
            ),
        )
        return _curves(terms, side, model, system, parallel)

    def _hop(self, model: ModelShape, system: System, parallel: Parallel) -> tuple[float, float]:
        """To the next stage: once, and for each row."""
        if parallel.pp == 1:
            return 0.0, 0.0
        link = system.link_bytes_per_s(parallel.gpus) * self.efficiency.link / US
        return system.link_us, 2.0 * model.model_dim / parallel.tp / link


def _curves(
    terms: OperatorTerms, side: StepSide, model: ModelShape, system: System, parallel: Parallel
) -> StepCurves:
    lacking = "; ".join(terms.extrapolated)
    return StepCurves(
        sides=(side,),
        source=f"{terms.source} composed to {model.name} on {system.name}"
        + (f"; not measured: {lacking}" if lacking else ""),
        pipeline=parallel.pp,
        domain=Domain(
            max_rows=float(ROW_KNOTS[-1]),
            max_visible=float(CHUNK_KNOTS[-1] + VISIBLE_KNOTS[-1]),
            max_decodes=float(BATCH_KNOTS[-1]),
            max_context=float(CONTEXT_KNOTS[-1]),
        ),
        is_extrapolated=bool(terms.extrapolated),
    )


def _more_sequences(head_us: Floats) -> Floats:
    """What the vocabulary head takes for a batch beyond what it takes for one."""
    return np.asarray(np.interp(BATCH_KNOTS, ROW_KNOTS, head_us) - head_us[0], np.float64)


def _quantisation(model: ModelShape) -> Quantisation:
    """Raises MissingCell for a width that no table can stand for."""
    linear = _precision(model, model.weight_nbytes_per_param)
    experts = model.expert_nbytes_per_param
    return Quantisation(
        gemm=linear,
        moe=_precision(model, experts) if experts else linear,
        kv_nbytes=model.kv_nbytes_per_scalar,
    )


def _precision(model: ModelShape, nbytes: float) -> str:
    """The name that tables use for weights of so many bytes."""
    if nbytes == PRECISIONS["int4"] and model.widens_weights:
        return "int4_wo"
    known = {2.0: "bfloat16", 1.0: "fp8"}
    known |= {PRECISIONS[name]: name for name in ("nvfp4", "mxfp4")}
    if nbytes not in known:
        raise MissingCell(f"operators: {model.name} has weights of {nbytes:g} bytes; no table has")
    return known[nbytes]


def _line(knots: Floats, values: Floats) -> Line:
    return Line(knots=tuple(map(float, knots)), values_us=tuple(map(float, values)))


def _grid(x: Floats, y: Floats, values: Floats) -> Grid:
    rows = tuple(tuple(map(float, row)) for row in values)
    return Grid(x=tuple(map(float, x)), y=tuple(map(float, y)), values_us=rows)
