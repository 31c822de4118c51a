"""Small made-up machines for provisioning tests: fast enough to search many fleets in seconds."""

import numpy as np

from baton.hardware.curves import Line, StepCurves, StepSide
from baton.planner.provision.load import Load
from baton.planner.provision.machine import MachineType
from baton.planner.provision.service import Rules, Service
from baton.sim.fast.deployment import Handoff
from baton.sim.fast.workload import FastWorkload


def curves(prompt_us_per_token: float, decode_us: float, decode_row_us: float) -> StepCurves:
    """A prompt costs by its tokens; a decode step is mostly fixed."""
    prompt = Line(knots=(0.0, 1000.0), values_us=(2000.0, 2000.0 + 1000 * prompt_us_per_token))
    side = StepSide(prefill_rows=prompt, decode_us=decode_us, decode_row_us=decode_row_us)
    return StepCurves(sides=(side,), source="made up", mixed_factor=1.1, mixed_as_prefill=True)


MACHINES = {
    "a100": MachineType(
        name="a100", curves=curves(200, 40_000, 400), kv_tokens=60_000, gpus=8,
        link_bytes_per_us=200_000, cost=17.68, power=24.8,
    ),
    "h100": MachineType(
        name="h100", curves=curves(90, 30_000, 300), kv_tokens=60_000, gpus=8,
        link_bytes_per_us=400_000, cost=38.08, power=44.0,
    ),
    "h100cap": MachineType(
        name="h100cap", curves=curves(120, 30_000, 300), kv_tokens=60_000, gpus=8,
        link_bytes_per_us=400_000, cost=38.08, power=30.8,
    ),
}  # fmt: skip


def service(**rules) -> Service:
    return Service(
        machines=MACHINES,
        handoff=Handoff(token_nbytes=1 << 20, num_layers=70),
        constants="simulator",
        cost_unit="$/h",
        power_unit="units",
        reference="a100",
        rules=Rules(**rules),
    )


def trace(num: int = 500, prompt: int = 900, output: int = 60, seed: int = 7) -> FastWorkload:
    """Lengths that vary, all at once."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return FastWorkload(
        arrival_us=np.zeros(num),
        num_prompt=rng.integers(prompt // 3, prompt * 2, num),
        num_output=rng.integers(1, output * 2, num),
        hash_offsets=np.zeros(num + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
        source="made up",
    )


def load(duration_s: float = 30.0, **lengths) -> Load:
    return Load(trace=trace(**lengths), duration_s=duration_s, name="made up")
