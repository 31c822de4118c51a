"""What a placement is searched for, and with how much care."""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from baton.errors import ConfigError
from baton.goodput.slo import SLOTargets
from baton.planner.goodput.answer import Contract
from baton.planner.goodput.attained import Rule
from baton.planner.goodput.draws import Draws
from baton.planner.goodput.find import Settings
from baton.planner.goodput.precision import MAX_REQUESTS

POLICIES = (
    "sarathi_serve",
    "token_budget",
    "prefill_first",
    "sarathi",
    "phase_pure",
    "decode_first",
    "whole_hybrid",
    "orca",
    "static",
)
"""Of colocated instances: all there are, those that win most often first."""
CHUNKED = ("sarathi_serve", "token_budget", "sarathi")
CHUNK_BUDGETS = (2048, 512, 1024, 4096, 8192)
WHOLE_BUDGETS = (2048, 8192)
"""Of policies that run prompts uncut."""


RANKING_RESIDENCES = 4.0
RANKING_REQUESTS = 1000


class Objective(StrEnum):
    """What is maximised."""

    TOTAL = "goodput of the cluster"
    PER_GPU = "goodput per GPU"
    """Of a part of the cluster that is then repeated (DistServe)."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Equal asks over equal inputs get equal answers."""

    targets: SLOTargets
    contract: Contract = Contract.PHASES
    objective: Objective = Objective.TOTAL
    seeds: tuple[int, ...] = (0, 1, 2)
    draws: Draws | None = None
    rule: Rule = Rule()
    num_requests: int | None = None
    most_requests: int = MAX_REQUESTS
    """Of each simulation at full length, whatever the precision needs."""
    search_precision: float = 0.1
    """While configurations are ranked."""
    final_precision: float = 0.05
    """Of the deployments that are compared in the end."""
    slack: float = 0.15
    """How much better than the sum of its parts a whole deployment may do: replicas share a queue,
    and prefill smooths what reaches decode. Bounds are widened by it before they prune."""
    most_simulated: int = 16
    """Whole deployments of one kind that are simulated; if a bound is still above the best one
    then, the gap is reported."""

    most_refined: int = 4
    """Of those, the first ones, that are simulated at full length."""

    def __post_init__(self) -> None:
        if self.targets.ttft_us is None or self.targets.tpot_us is None:
            raise ConfigError(
                f"placement: targets {self.targets} lack a TTFT or a TPOT; each phase is searched "
                "by its own clock, so give both"
            )
        if not 0 <= self.slack < 1:
            raise ConfigError(f"slack = {self.slack}: from 0 to below 1")
        for name in ("most_simulated", "most_refined"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: at least 1")

    @property
    def final(self) -> Settings:
        """For the rate of a deployment that is compared in the end."""
        return Settings(
            targets=self.targets,
            contract=self.contract,
            relative_precision=self.final_precision,
            seeds=self.seeds,
            draws=self.draws,
            rule=self.rule,
            num_requests=self.num_requests,
            most_requests=self.most_requests,
        )

    def ranking(self, targets: SLOTargets | None = None) -> Settings:
        """For rates that decide what is looked at closely: shorter, so on the high side."""
        return msgspec.structs.replace(
            self.final,
            targets=targets or self.targets,
            relative_precision=self.search_precision,
            num_residences=RANKING_RESIDENCES,
            most_requests=RANKING_REQUESTS,
            settles=False,
        )

    @property
    def ttft_alone(self) -> SLOTargets:
        """Prefill's clock."""
        return msgspec.structs.replace(self.targets, tpot_us=None, e2e_us=None)

    def value(self, goodput_per_s: float, num_gpus: int) -> float:
        """What the objective says of a deployment."""
        return goodput_per_s if self.objective is Objective.TOTAL else goodput_per_s / num_gpus


Say = Callable[[str], None]


def silent(text: str) -> None:
    """Nobody listens."""
