"""A case on the fast host: one engine, or as many ranks as share its data, as vLLM schedules."""

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.core.ids import Role
from baton.errors import ConfigError
from baton.hardware.curves import StepCurves
from baton.hardware.layers.predictor import LayersPredictor
from baton.hardware.layers.skew import spread_of
from baton.hardware.model import find_model
from baton.hardware.model_shape import ModelShape
from baton.planner.truth.case import Case, Engine
from baton.planner.truth.host import PROMPT_STEP_US, STEP_US
from baton.sim.fast.deployment import Deployment, WorkerGroup
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Of one case; a column for each that a run measures."""

    columns: dict[str, Floats]
    deployment: Deployment
    wall_s: float
    """Of the simulation alone, compiled before."""
    num_preempted: int
    num_extrapolated: int
    """Steps beyond the timings, of `num_steps`."""
    num_steps: int


def predict(case: Case, profiles: Path) -> Prediction:
    """Raises ConfigError where the timings lack this engine's model, machine or cut."""
    deployment, workload = deployment_of(case, profiles), workload_of(case)
    start = time.perf_counter()
    result = simulate_fast(deployment, workload)
    wall_s = time.perf_counter() - start
    if not bool(result.is_completed.all()):
        lost = int((~result.is_completed).sum())
        raise ConfigError(
            f"{case.name}: {lost} requests never fit {deployment.groups[0].kv_tokens} tokens of K/V"
        )
    return Prediction(
        columns={
            "ttft_ms": (result.first_us - result.noticed_us) / 1e3,
            "tpot_ms": result.tpot_us / 1e3,
            "latency_ms": (result.last_us - result.noticed_us) / 1e3,
        },
        deployment=deployment,
        wall_s=wall_s,
        num_preempted=int(result.num_preempted.sum()),
        num_extrapolated=int(result.workers.num_extrapolated.sum()),
        num_steps=int(result.workers.num_steps.sum()),
    )


def workload_of(case: Case) -> FastWorkload:
    """Prompts share no prefix: the runs publish lengths, not tokens."""
    num_requests = len(case.arrival_us)
    return FastWorkload(
        arrival_us=case.arrival_us,
        num_prompt=case.num_prompt,
        num_output=case.num_output,
        hash_offsets=np.zeros(num_requests + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
        max_output=case.num_output,
        source=case.name,
    )


def deployment_of(case: Case, profiles: Path) -> Deployment:
    """A token budget for decodes and chunks, first come first served; the latest is preempted."""
    engine = case.engine
    model = find_model(engine.model)
    predictor = LayersPredictor(profiles, spread_of(case.num_prompt, case.num_output))
    curves = predictor.engine_curves(model, engine.system, engine.cut, engine.link)
    group = WorkerGroup(
        name="rank" if engine.cut.dp > 1 else "engine",
        role=Role.MIXED,
        num_workers=engine.cut.dp,
        curves=_with_prompt_overhead(curves),
        kv_tokens=kv_tokens(engine, model),
        gpus=engine.cut.tp,
        block_size=engine.block_size,
        batch_policy="sarathi_serve",
        max_batch_tokens=engine.max_batch_tokens,
        max_num_seqs=engine.max_num_seqs,
        growth_tokens=1,
        chunk_grid=1,
        max_preemptions=0,
        queues_at_worker=True,
        looks_ahead=True,
        recomputes_as_prompt=True,
        keeps_preempted=True,
        steps_together=engine.cut.dp > 1,
        step_overhead_us=STEP_US,
    )
    return Deployment(groups=(group,))


def kv_tokens(engine: Engine, model: ModelShape) -> int:
    """Of one rank: what the engine found, else what its share of memory leaves beside weights."""
    if engine.num_blocks:
        return engine.num_blocks * engine.block_size
    cut = engine.cut
    expert = model.expert_nbytes_per_param or model.weight_nbytes_per_param
    experts = model.all_expert_parameters * expert
    weights = (model.weight_nbytes - experts) / cut.tp
    weights += experts / (cut.expert_gpus if cut.is_expert_parallel else cut.tp)
    token_nbytes = model.token_nbytes / min(cut.tp, model.num_kv_heads)
    left = engine.memory_nbytes * engine.utilization - weights
    if left < token_nbytes * engine.block_size:
        raise ConfigError(
            f"{engine.model} with {cut} leaves no K/V: {weights / 2**30:.1f} GiB of weights in "
            f"{engine.utilization:g} of {engine.memory_nbytes / 2**30:.1f} GiB (npu_mem.mem_size)"
        )
    return int(left / token_nbytes / engine.block_size) * engine.block_size


def _with_prompt_overhead(curves: StepCurves) -> StepCurves:
    sides = tuple(
        msgspec.structs.replace(side, prefill_us=side.prefill_us + PROMPT_STEP_US)
        for side in curves.sides
    )
    return msgspec.structs.replace(curves, sides=sides)
