"""What `baton plan` is asked: a trace, a model, a machine, GPUs, and two clocks."""

import math
import re
from pathlib import Path

import msgspec

from baton.errors import ConfigError
from baton.goodput.slo import SLOTargets
from baton.hardware.memory import check_utilization
from baton.planner.goodput.answer import Contract
from baton.planner.goodput.draws import Arrivals
from baton.policy.routing.policies import ROUTE_POLICIES

US_PER_MS = 1000
_TIME = re.compile(r"(?P<number>[0-9.eE+-]+)\s*(?P<unit>ms|s|us)?")
_UNITS_MS = {None: 1.0, "ms": 1.0, "s": 1000.0, "us": 0.001}
LEAST_REQUESTS = 50
MOST_GPUS, MOST_REQUESTS, MOST_TOKENS = 65_536, 1 << 20, 10**12
"""Far beyond what is asked, and still within memory and whole numbers of 64 bits."""
CVS = (0.01, 10.0)
"""Of gamma arrivals: nearly constant, and bursts of a hundred at once."""
SEEDS = tuple(range(7))
QUICK_POLICIES = ("sarathi_serve", "prefill_first")
QUICK_STAGES = (1, 2, 4)
"""Batch policies of colocated workers, and pipelines, where the search is not `thorough`."""
QUICK_DEPLOYMENTS, THOROUGH_DEPLOYMENTS = 8, 16
"""Whole splits that are simulated at most."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Equal questions over equal files get equal answers."""

    trace: Path
    targets: SLOTargets
    gpus: int
    model: str = ""
    """A name or a config.json; "": what the profile measured."""
    system: str = ""
    """A name or a YAML file; "": the machine of the profile."""
    profile: Path | None = None
    data: Path | None = None
    predictor: str = ""
    """A source by name; "": the best one there is."""
    format: str = "auto"
    limit: int | None = None
    """Only the first requests of the trace."""
    rate_per_s: float | None = None
    contract: Contract = Contract.PHASES
    safety: float = 0.05
    """By what share split must be better before it is worth its second pool."""
    seeds: tuple[int, ...] = SEEDS
    utilization: float = 0.9
    arrivals: Arrivals = Arrivals.POISSON
    cv: float | None = None
    """Coefficient of variation of the gaps, of gamma arrivals alone."""
    route: str = "shortest_queue"
    """Of both arms; those that ask for caches pay where the trace has shared prefixes."""
    thorough: bool = False
    """Every batch policy and every cut, odd ones too; minutes."""
    kv_tokens: int | None = None
    """Of one instance, instead of what memory gives."""
    num_requests: int | None = None
    """Of each simulation; None: as many as the precision needs."""

    def __post_init__(self) -> None:
        if self.gpus < 2:
            raise ConfigError(
                f"--gpus {self.gpus}: split and colocated can be compared on 2 or more"
            )
        if self.gpus > MOST_GPUS:
            raise ConfigError(f"--gpus {self.gpus}: at most {MOST_GPUS}")
        if self.rate_per_s is not None and not (
            math.isfinite(self.rate_per_s) and self.rate_per_s > 0
        ):
            raise ConfigError(f"--rate {self.rate_per_s:g}: requests a second, above 0")
        if not 0 <= self.safety < 1:
            raise ConfigError(f"--safety {self.safety:g}: a share from 0 to below 1, such as 0.05")
        if self.num_requests is not None and self.num_requests < LEAST_REQUESTS:
            raise ConfigError(
                f"--requests {self.num_requests}: at least {LEAST_REQUESTS}, or a share of them "
                "means nothing"
            )
        if self.num_requests is not None and self.num_requests > MOST_REQUESTS:
            raise ConfigError(f"--requests {self.num_requests}: at most {MOST_REQUESTS}")
        if self.kv_tokens is not None and not 1 <= self.kv_tokens <= MOST_TOKENS:
            raise ConfigError(f"--kv-tokens {self.kv_tokens}: 1 to {MOST_TOKENS}")
        if self.route not in ROUTE_POLICIES:
            raise ConfigError(f"--route {self.route!r}: use one of {', '.join(ROUTE_POLICIES)}")
        self._check_gaps()
        check_utilization(self.utilization)
        if not self.model and self.profile is None:
            raise ConfigError("name a --model, or a --profile that measured one")
        if not self.system and self.profile is None:
            raise ConfigError("name a --system, or a --profile that measured this machine")

    def _check_gaps(self) -> None:
        is_gamma = self.arrivals is Arrivals.GAMMA
        if is_gamma and not (self.cv is not None and CVS[0] <= self.cv <= CVS[1]):
            raise ConfigError(
                f"--cv {'is missing' if self.cv is None else f'{self.cv:g}'}: --arrivals gamma "
                f"takes the gaps' coefficient of variation, {CVS[0]:g} to {CVS[1]:g}, such as 2"
            )
        if self.cv is not None and not is_gamma:
            raise ConfigError(
                f"--cv {self.cv:g} has no effect on --arrivals {self.arrivals}; use gamma"
            )


def time_ms(flag: str, text: str) -> float:
    """Milliseconds as a command line spells them: 200, 200ms, 0.2s."""
    found = _TIME.fullmatch(text.strip())
    try:
        value = float(found["number"]) * _UNITS_MS[found["unit"]] if found else math.nan
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value * US_PER_MS >= 1):
        raise ConfigError(
            f"{flag} {text!r}: a time above 0, in milliseconds or with a unit, such as 200, "
            "200ms or 0.2s"
        )
    return value


def targets_of(ttft: str, tpot: str, attainment: float) -> SLOTargets:
    """Both clocks."""
    if not 0 < attainment <= 1:
        raise ConfigError(f"--attainment {attainment:g}: a share above 0 and up to 1, such as 0.9")
    return SLOTargets(
        ttft_us=round(time_ms("--ttft", ttft) * US_PER_MS),
        tpot_us=round(time_ms("--tpot", tpot) * US_PER_MS),
        attainment=attainment,
    )
