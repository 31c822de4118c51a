"""Ready deployments of the winner and of the arm beside it."""

from pathlib import Path

from baton.planner.deploy.target import Target
from baton.planner.deploy.write import write_deployments
from baton.planner.plan.blueprints import blueprint_of
from baton.planner.plan.inputs import Inputs
from baton.planner.plan.run import Found
from baton.planner.plan.verdict import Outcome

WINNER, CLOSEST, RUNNER_UP = "winner", "closest", "runner-up"


def write_arms(folder: Path, found: Found, inputs: Inputs) -> list[Path]:
    """Folders `winner` and `runner-up`, as far as there are arms; `closest` where nobody wins."""
    is_lost = found.result.verdict.outcome is Outcome.NOTHING
    arms = {CLOSEST if is_lost else WINNER: found.winner, RUNNER_UP: found.runner_up}
    blueprints = {name: blueprint_of(arm) for name, arm in arms.items() if arm is not None}
    return write_deployments(folder, blueprints, target_of(found, inputs))


def target_of(found: Found, inputs: Inputs) -> Target:
    """What both serve."""
    question, result = inputs.question, found.result
    targets = question.targets
    return Target(
        model=question.model or inputs.model.name,
        max_model_len=inputs.longest,
        token_nbytes=inputs.space.token_nbytes,
        ttft_ms=(targets.ttft_us or 0) / 1000,
        tpot_ms=(targets.tpot_us or 0) / 1000,
        gpus_per_node=inputs.space.cluster.gpus_per_node,
        is_cpu=inputs.is_profiled,
        memory_utilization=question.utilization,
        comment=f"{result.verdict.sentence}\nPlanned by baton {result.version} from {result.trace}",
    )
