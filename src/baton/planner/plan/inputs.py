"""From a question's names and files to a model, a machine, step times and requests."""

import msgspec

from baton.errors import ConfigError
from baton.hardware.model import find_model
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import Choice, choose_predictor
from baton.hardware.profile_predictor import THIS, ProfilePredictor
from baton.hardware.system import System, find_system
from baton.planner.goodput.draws import Arrivals, Draws, Lengths, resampling
from baton.planner.placement.cluster import Cluster, cluster_of
from baton.planner.placement.space import Serving, Space, all_cuts, find_space
from baton.planner.plan.question import QUICK_STAGES, Question
from baton.sim.fast.workload import FastWorkload, pack
from baton.workload.load import load_trace
from baton.workload.request import Workload

US_PER_S = 1e6


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the answer depends on."""

    question: Question
    model: ModelShape
    system: System
    choice: Choice
    space: Space
    workload: FastWorkload
    notes: tuple[str, ...]
    """What was done to the trace."""
    own_rate_per_s: float
    """Of the trace; 0 when all its requests come at once."""
    longest: int
    """Tokens of the longest request."""

    @property
    def draws(self) -> Draws:
        """How requests are drawn from the trace."""
        if self.question.arrivals is Arrivals.TRACE:
            return Draws(arrivals=Arrivals.TRACE, lengths=Lengths.TRACE)
        return msgspec.structs.replace(
            resampling(self.workload), arrivals=self.question.arrivals, cv=self.question.cv or 1.0
        )

    @property
    def is_profiled(self) -> bool:
        """Measured on this machine, which Baton itself would serve on."""
        return self.system.name == THIS


def load_inputs(question: Question) -> Inputs:
    """Raises ConfigError that names the flag, what is wrong with it, and the nearest names."""
    model, system, choice = _machine(question)
    cluster = cluster_of(system, question.gpus)
    space = find_space(
        model,
        system,
        choice.predictor,
        cluster,
        serving=Serving(route=question.route),
        parallels=None if question.thorough else quick_cuts(model, cluster),
        utilization=question.utilization,
    )
    if question.kv_tokens is not None:
        space = msgspec.structs.replace(
            space,
            candidates=tuple(
                msgspec.structs.replace(one, kv_tokens=question.kv_tokens)
                for one in space.candidates
            ),
        )
    trace = load_trace(question.trace, question.format, limit=question.limit)
    _check_lengths(trace, space)
    return Inputs(
        question=question,
        model=model,
        system=system,
        choice=choice,
        space=space,
        workload=pack(trace),
        notes=trace.notes,
        own_rate_per_s=_own_rate(trace),
        longest=max(
            one.num_prompt_tokens + max(1, one.num_output_tokens) for one in trace.requests
        ),
    )


def quick_cuts(model: ModelShape, cluster: Cluster) -> list[Parallel]:
    """Tensor parallelism of powers of two, short pipelines: what is commonly deployed."""
    return [
        cut
        for cut in all_cuts(model, cluster)
        if cut.tp & (cut.tp - 1) == 0 and cut.pp in QUICK_STAGES
    ]


def _machine(question: Question) -> tuple[ModelShape, System, Choice]:
    if question.profile is None:
        model, system = find_model(question.model), find_system(question.system)
    else:
        measured = ProfilePredictor(question.profile)
        model = find_model(question.model) if question.model else measured.model
        is_this = question.system in ("", THIS)
        system = measured.system if is_this else find_system(question.system)
    choice = choose_predictor(
        model,
        system,
        data=question.data,
        profile=question.profile,
        name=question.predictor or None,
    )
    return model, system, choice


def _check_lengths(trace: Workload, space: Space) -> None:
    """A request that no instance can hold is a miss in every plan: more than a few decide alone."""
    most = max(one.kv_tokens for one in space.candidates)
    lengths = [one.num_prompt_tokens + one.num_output_tokens for one in trace.requests]
    num_long = sum(length > most for length in lengths)
    if num_long == len(lengths):
        raise ConfigError(
            f"--trace: every request is longer than the {most} tokens of K/V that the largest "
            f"instance holds (the shortest has {min(lengths)}); use more GPUs or a shorter trace"
        )


def _own_rate(trace: Workload) -> float:
    span_us = trace.requests[-1].arrival_us - trace.requests[0].arrival_us
    return (len(trace.requests) - 1) * US_PER_S / span_us if span_us > 0 else 0.0
