"""A plan's deployment, made to hold what it serves."""

import msgspec

from baton.sim.replay.setup import ReplaySetup
from baton.sim.simulate.plan import Plan
from baton.workload.request import Workload


def fitting(plan: Plan, served: Workload) -> ReplaySetup:
    """With a context for the longest request, where the plan names none."""
    longest = max(one.num_prompt_tokens + max(1, one.num_output_tokens) for one in served.requests)
    return msgspec.structs.replace(plan.setup, max_model_len=plan.max_model_len or longest)
