"""Splitwise's clusters, workloads and contract, as R7 to R13 share them.

Each result is run under two readings of the published table. "as published": a decode step costs
what the authors' simulator looks up, which enters a column of prompt x batch tokens with the batch
size alone, so that 1 and 64 sequences cost the same. "as measured": the rows of the same table by
batch size, where 64 sequences take twice as long as one. Targets are judged under the first, since
the claims were made with it; the second says whether a claim survives its own measurements.
"""

import math
from functools import lru_cache
from pathlib import Path

from baton.goodput.slowdown import TBT, SlowdownTargets
from baton.hardware.model import find_model
from baton.hardware.parallel import Parallel
from baton.hardware.splitwise import TABLE, SplitwisePredictor
from baton.hardware.system import find_system
from baton.planner.provision.catalogue import SYSTEMS
from baton.planner.provision.constants import SIMULATOR
from baton.planner.provision.fleet import Fleet, parse_fleet
from baton.planner.provision.load import Load
from baton.planner.provision.machine import MachineType
from baton.planner.provision.probe import Prober
from baton.planner.provision.rate import FleetRate, Grid, highest_rate
from baton.planner.provision.service import Rules, Service
from baton.planner.reproduce.context import Context
from baton.sim.fast.deployment import Handoff
from baton.sim.fast.workload import FastWorkload, pack
from baton.workload.load import load_trace

MODEL, GPUS = "bloom-176b", 8
GPU_NBYTES, WEIGHT_NBYTES = 80 * 2**30, 329_000_000_000
"""As the authors' simulator has them: all of the memory but the weights holds K/V."""
LINK_BYTES_PER_US = {"a100": 8 * 25_000.0, "h100": 8 * 50_000.0, "h100cap": 8 * 50_000.0}
"""One adapter of 200 or 400 Gb/s for each GPU."""
TRACES = {
    "conversation": "azure-llm-2023/AzureLLMInferenceTrace_conv.csv",
    "code": "azure-llm-2023/AzureLLMInferenceTrace_code.csv",
}
FILES = (TABLE, *TRACES.values())
PUBLISHED, MEASURED = "as published", "as measured"
READINGS = {PUBLISHED: "batch_tokens", MEASURED: "batch"}
LONG_S = 600.0
"""Of arrivals, as the authors' traces: shorter ones end before queues have grown."""
RULES = Rules()
"""Mixed batching on baselines and borrowed machines, JSQ, the mixed pool at 8192 tokens."""
SCOUT_S = 60.0
"""Of the first search, which tells the long one where to begin."""
SHORT_S = 120.0
"""Of the traces of its design space."""
GRID = Grid(step_per_s=10.0, lowest_per_s=10.0)
"""The authors simulated multiples of 10 requests a second."""


def machines(folder: Path, reading: str) -> dict[str, MachineType]:
    """The three machines of the paper with the prices of its simulator."""
    predictor = SplitwisePredictor(folder, READINGS[reading])
    model, parallel = find_model(MODEL), Parallel(tp=GPUS)
    kv_tokens = (GPUS * GPU_NBYTES - WEIGHT_NBYTES) // int(model.token_nbytes)
    return {
        name: MachineType(
            name=name,
            curves=predictor.curves(model, find_system(SYSTEMS[name]), parallel),
            kv_tokens=kv_tokens,
            gpus=GPUS,
            link_bytes_per_us=LINK_BYTES_PER_US[name],
            cost=SIMULATOR.cost[name],
            power=SIMULATOR.power[name],
        )
        for name in SIMULATOR.cost
    }


@lru_cache(maxsize=4)
def service(folder: Path, reading: str, rules: Rules) -> Service:
    """Slowdowns are against what one sequence was measured to take on a DGX-A100."""
    model = find_model(MODEL)
    found = machines(folder, reading)
    alone = SplitwisePredictor(folder, READINGS[MEASURED])
    return Service(
        machines=found,
        handoff=Handoff(token_nbytes=int(model.token_nbytes), num_layers=model.num_layers),
        constants=SIMULATOR.name,
        cost_unit=SIMULATOR.cost_unit,
        power_unit=SIMULATOR.power_unit,
        reference="a100",
        alone=alone.curves(model, find_system(SYSTEMS["a100"]), Parallel(tp=GPUS)),
        rules=rules,
    )


@lru_cache(maxsize=2)
def trace(folder: Path, name: str) -> FastWorkload:
    """Of the Azure sample of 2023."""
    return pack(load_trace(folder / TRACES[name]))


@lru_cache(maxsize=16)
def prober(folder: Path, workload: str, reading: str, duration_s: float, rules: Rules) -> Prober:
    """Prompt and output lengths drawn apart, Poisson arrivals, TBT as in the authors' simulator."""
    return Prober(
        service=service(folder, reading, rules),
        load=Load(trace=trace(folder, workload), duration_s=duration_s, name=f"Azure {workload}"),
        targets=SlowdownTargets(),
        tbt=TBT.PER_TOKEN,
    )


def told(context: Context, workload: str, reading: str, duration_s: float = LONG_S) -> Prober:
    """The prober that all results share, which tells this context what it simulates."""
    found = prober(context.folder, workload, reading, duration_s, RULES)
    found.say = context.say
    return found


def rate_of(context: Context, workload: str, reading: str, fleet: str | Fleet) -> FleetRate:
    """The highest multiple of 10 requests a second that a cluster serves, with each seed.

    What is judged is simulated for as long as the authors did, the rest for less.
    """
    one = parse_fleet(fleet) if isinstance(fleet, str) else fleet
    prober = told(context, workload, reading, LONG_S if reading == PUBLISHED else SHORT_S)
    scout = told(context, workload, reading, SCOUT_S)
    return highest_rate(prober, one, GRID, context.seeds, scout)


def ratios(one: FleetRate, base: FleetRate) -> list[float]:
    """Rate over rate, seed by seed; a base that serves nothing has none."""
    return [
        over.rate_per_s / under.rate_per_s if under.rate_per_s else math.inf
        for over, under in zip(one.seeds, base.seeds, strict=True)
    ]


def rates_text(*found: FleetRate) -> str:
    """Each cluster's rate and what binds it."""
    return "; ".join(
        f"{one.fleet} {one.rate.value:.4g} [{one.rate.low:.4g}, {one.rate.high:.4g}]/s "
        f"({one.binding})"
        for one in found
    )
