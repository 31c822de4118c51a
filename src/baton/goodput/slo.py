"""The latency targets that a request is judged by, and their spelling on a command line."""

import math
from collections.abc import Sequence

import msgspec

from baton.errors import ConfigError

US_PER_MS = 1000
FIELDS = {"ttft": "ttft_us", "tpot": "tpot_us", "e2el": "e2e_us"}
"""vLLM's word for each target, and the target."""
EXAMPLE = "ttft:200 tpot:50 e2el:1000, in milliseconds"


class SLOTargets(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bounds that a request meets by reaching them exactly; None is no target.

    `attainment` is the fraction of the counted requests that must meet them.
    """

    ttft_us: int | None = None
    tpot_us: int | None = None
    e2e_us: int | None = None
    attainment: float = 0.9

    def __post_init__(self) -> None:
        targets = {"ttft_us": self.ttft_us, "tpot_us": self.tpot_us, "e2e_us": self.e2e_us}
        if all(value is None for value in targets.values()):
            raise ConfigError("no latency target: set at least one of ttft_us, tpot_us, e2e_us")
        for name, value in targets.items():
            if value is not None and value < 1:
                raise ConfigError(f"{name} = {value}: a latency target is at least 1 us")
        if not 0 < self.attainment <= 1:
            raise ConfigError(
                f"attainment = {self.attainment}: a fraction above 0 and at most 1, such as 0.9"
            )

    def __str__(self) -> str:
        targets = (("ttft", self.ttft_us), ("tpot", self.tpot_us), ("e2el", self.e2e_us))
        return " ".join(
            f"{word}:{value / US_PER_MS:g}" for word, value in targets if value is not None
        )


def parse_goodput(words: Sequence[str] | str, attainment: float = 0.9) -> SLOTargets:
    """Targets from what follows `--goodput`: words like ttft:200, one or several to a string."""
    pieces = words.split() if isinstance(words, str) else " ".join(words).split()
    if not pieces:
        raise ConfigError(f"--goodput: no target; write {EXAMPLE}")
    found: dict[str, int] = {}
    for piece in pieces:
        word, colon, text = piece.partition(":")
        if word not in FIELDS:
            raise ConfigError(
                f"--goodput {piece!r}: {word!r} is no target; use {', '.join(FIELDS)}, "
                f"such as {EXAMPLE}"
            )
        if not colon:
            raise ConfigError(f"--goodput {piece!r}: no milliseconds; write {word}:200")
        if word in found:
            raise ConfigError(f"--goodput {piece!r}: {word} is given twice; keep one")
        found[word] = _milliseconds(piece, text)
    return SLOTargets(
        ttft_us=found.get("ttft"),
        tpot_us=found.get("tpot"),
        e2e_us=found.get("e2el"),
        attainment=attainment,
    )


def _milliseconds(piece: str, text: str) -> int:
    try:
        value_ms = float(text)
    except ValueError:
        raise ConfigError(
            f"--goodput {piece!r}: {text!r} is not a number of milliseconds; write {EXAMPLE}"
        ) from None
    if not math.isfinite(value_ms) or not 1 <= value_ms * US_PER_MS <= 1 << 60:
        raise ConfigError(
            f"--goodput {piece!r}: {text!r} must be a finite number of milliseconds above 0, "
            "at least 0.001"
        )
    return round(value_ms * US_PER_MS)
