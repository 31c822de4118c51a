"""The step curves behind a replay's costs, so that both hosts simulate one machine."""

from baton.errors import ConfigError
from baton.hardware import profile_predictor
from baton.hardware.curves import Line, StepCurves, StepSide
from baton.policy.service_profile import ServiceProfile
from baton.sim.fast.costs import CurvesCosts
from baton.sim.replay.costs import Costs
from baton.sim.simulate.hardware import GIGA, US_PER_S, Machine, MachineCosts


def curves_of(costs: Costs) -> StepCurves:
    """Of a named machine, a measured profile, or a predictor's own."""
    match costs:
        case MachineCosts():
            return machine_curves(costs.machine)
        case ServiceProfile():
            return profile_predictor.curves_of(costs)
        case CurvesCosts():
            return costs.curves
    raise ConfigError(f"--fast: {type(costs).__name__} has no step curves; leave --fast out")


def machine_curves(machine: Machine) -> StepCurves:
    """`MachineCosts.step_us` term by term.

    Of a chunk, end^2 - v^2 = 2 pairs - n; a decode row is a chunk of one row.
    """
    per_us = machine.peak_tflops * 1e12 * machine.mfu / US_PER_S
    width, num_layers = machine.model_dim, machine.num_layers
    pair_us = 2 * machine.pair_factor * num_layers * width / per_us
    row_us = machine.row_factor * num_layers * width * width / per_us - pair_us / 2
    compute = StepSide(
        pair_us=pair_us,
        prefill_rows=Line(knots=(0.0, 1.0), values_us=(0.0, row_us)),
        decode_row_us=row_us,
        decode_token_us=pair_us,
    )
    nbytes_per_us = machine.memory_gbytes_per_s * GIGA / US_PER_S
    token_us = machine.token_nbytes / nbytes_per_us
    memory = StepSide(
        step_us=machine.weight_nbytes / nbytes_per_us,
        gathered_us=token_us,
        decode_token_us=token_us,
    )
    return StepCurves(
        sides=(compute, memory),
        source=f"{machine.name}: FLOPs at MFU {machine.mfu:g}, bytes at memory bandwidth",
    )
