"""One instance of a model on its GPUs: what planners put into a group of workers."""

import msgspec

from baton.hardware.curves import StepCurves
from baton.hardware.memory import kv_tokens
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import Predictor
from baton.hardware.serving import KnowsServing, ServingFacts
from baton.hardware.system import System


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """Step time, K/V capacity and GPUs."""

    curves: StepCurves
    kv_tokens: int
    gpus: int
    step_overhead_us: float = 0.0
    sequence_overhead_us: float = 0.0
    kv_source: str = ""
    """Where the capacity is from."""


def instance_of(
    predictor: Predictor,
    model: ModelShape,
    system: System,
    parallel: Parallel,
    *,
    utilization: float = 0.9,
) -> Instance:
    """Capacity as the source published it, or by formula.

    Raises MissingCell where the source has no such cut, and ConfigError where the model does not
    fit.
    """
    curves = predictor.curves(model, system, parallel)
    facts = ServingFacts()
    if isinstance(predictor, KnowsServing):
        facts = predictor.serving(model, system, parallel)
    if facts.kv_tokens is not None:
        tokens, source = facts.kv_tokens, facts.source
    else:
        tokens = kv_tokens(model, system, parallel, utilization)
        source = f"{utilization:g} of the memory, less weights, activations and reserve"
    return Instance(
        curves=curves,
        kv_tokens=tokens,
        gpus=parallel.gpus,
        step_overhead_us=facts.step_overhead_us,
        sequence_overhead_us=facts.sequence_overhead_us,
        kv_source=source,
    )
