"""What serving adds to a step: the real worker against the bare engine, batch by batch."""

import asyncio

import msgspec

from baton.bench.overhead import OverheadRow, measure_steps
from baton.bench.steps import Case
from baton.config import BatonConfig
from baton.policy.service_profile import StepOverhead

_CASES = (Case(batch=1, context=128), Case(batch=8, context=128))


def measure_step_overhead(config: BatonConfig, rounds: int) -> StepOverhead:
    """Of one colocated worker, whose core is its own as far as the machine has one for it."""
    replace = msgspec.structs.replace
    config = replace(
        config,
        cluster=replace(config.cluster, prefill=0, decode=0, mixed=1),
        model=replace(config.model, self_test=False),  # the profiled engine was proven already
    )
    return step_overhead(asyncio.run(measure_steps(config, list(_CASES), rounds)))


def step_overhead(rows: list[OverheadRow]) -> StepOverhead:
    """A fixed part and a part of each sequence from a small and a large batch; none is negative."""
    added_us = [max(0.0, 1000 * (row.served_ms - row.bare_ms)) for row in rows]
    small, large = rows[0].case.batch, rows[-1].case.batch
    sequence_us = max(0.0, (added_us[-1] - added_us[0]) / (large - small))
    return StepOverhead(
        step_us=max(0.0, added_us[0] - small * sequence_us), sequence_us=sequence_us
    )
