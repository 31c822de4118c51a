"""`baton plan --controller`: the split's counts under control, on the trace's own arrivals."""

import msgspec

from baton.errors import ConfigError
from baton.planner.controller.run import Outcome, run_controlled, run_static
from baton.planner.controller.workers import scene_of
from baton.planner.placement.found import Arm
from baton.planner.plan.inputs import Inputs
from baton.policy.replan_signals import ReplanRules

US_PER_S = 1e6
START_US, FLIP_US, INTERVAL_US = 30 * US_PER_S, 5 * US_PER_S, 5 * US_PER_S


def controlled(split: Arm, inputs: Inputs) -> list[Outcome]:
    """The planned counts kept, and the same changed by the controller within all GPUs."""
    question, targets = inputs.question, inputs.question.targets
    if not inputs.own_rate_per_s > 0:
        raise ConfigError(
            f"--controller: all requests of {question.trace} come at once; there is no load to "
            "follow"
        )
    scene, num_prefill, num_decode = scene_of(split)
    rules = ReplanRules(
        ttft_us=float(targets.ttft_us or 0),
        tpot_us=float(targets.tpot_us or 0),
        attainment=min(targets.attainment, 0.999),
        max_gpus=question.gpus,
        start_us=START_US,
        flip_us=FLIP_US,
    )
    factor = 1.0
    if question.rate_per_s is not None:
        factor = question.rate_per_s / inputs.own_rate_per_s
    workload = inputs.workload.at_rate(factor)
    static = run_static(scene, workload, rules, num_prefill, num_decode)
    moved = run_controlled(
        scene,
        workload,
        rules,
        num_prefill=num_prefill,
        num_decode=num_decode,
        interval_us=INTERVAL_US,
    )
    return [msgspec.structs.replace(static, name=f"planned, {static.name}"), moved]
