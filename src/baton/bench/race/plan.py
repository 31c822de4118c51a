"""What a race measures, and for how long."""

import math

import msgspec

from baton.errors import ConfigError
from baton.goodput.slo import parse_goodput


class RacePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Targets are multiples of the split arm's unloaded clocks unless `goodput` names them."""

    repetitions: int = 3
    duration_s: float = 12.0
    seed: int = 1
    attainment: float = 0.9
    ttft_scale: float = 6.0
    tpot_scale: float = 2.0
    goodput: str = ""
    rates: tuple[float, ...] = ()
    """Offered rates; empty: fractions of the split arm's capacity."""
    budget: int = 64
    """Token budget of the chunked arms."""
    budgets: tuple[int, ...] = (32, 64, 128, 256)
    """Token budgets of X2."""
    stream_tokens: int = 1500
    """Of a live stream under a burst, which interrupts it at its end."""
    alone_tokens: int = 150
    """Of a live stream without a burst."""
    contests: tuple[str, ...] = ("long-prompt", "short-prompt")
    with_streams: bool = True
    safety_margin_ms: float = 0.0
    profiles: tuple[str, ...] = ()
    """Service profile files, one for each number of engine threads."""

    def __post_init__(self) -> None:
        for name in ("repetitions", "duration_s", "ttft_scale", "tpot_scale", "stream_tokens"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"race: {name} = {getattr(self, name)}; use a number above 0")
        if not 0 < self.attainment <= 1:
            raise ConfigError(f"--attainment {self.attainment:g}: a fraction above 0, at most 1")
        if self.goodput:
            targets = parse_goodput(self.goodput, self.attainment)
            if targets.ttft_us is None or targets.tpot_us is None:
                raise ConfigError(
                    f"--goodput {self.goodput!r}: a race judges both clocks; write "
                    "'ttft:500 tpot:100'"
                )
        if not self.safety_margin_ms >= 0:
            raise ConfigError(f"--safety-margin-ms {self.safety_margin_ms:g}: must not be negative")
        if any(budget < 2 for budget in (self.budget, *self.budgets)):
            raise ConfigError("--budget: a token budget is at least 2")
