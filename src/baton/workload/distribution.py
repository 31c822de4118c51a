"""Length distributions, and their spelling on a command line."""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.workload.check import check_positive
from baton.workload.loaders.field import MAX_TOKENS


class Fixed(msgspec.Struct, frozen=True, kw_only=True, tag="fixed"):
    """Always the same length."""

    length: int

    def __post_init__(self) -> None:
        check_length(self.length, "length")

    def draw(self, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`num` lengths."""
        return np.full(num, self.length, dtype=np.int64)


class Uniform(msgspec.Struct, frozen=True, kw_only=True, tag="uniform"):
    """Every length from `low` to `high`, both included, equally often."""

    low: int
    high: int

    def __post_init__(self) -> None:
        check_length(self.low, "low")
        check_length(self.high, "high")
        if self.high < self.low:
            raise ConfigError(f"uniform lengths: high = {self.high} is below low = {self.low}")

    def draw(self, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`num` lengths."""
        return rng.integers(self.low, self.high, size=num, endpoint=True)


class LogNormal(msgspec.Struct, frozen=True, kw_only=True, tag="lognormal"):
    """Log-normal of arithmetic mean `mean` before the cap; `sigma` is that of the logarithm."""

    mean: float
    sigma: float
    cap: int

    def __post_init__(self) -> None:
        check_positive(self.mean, "mean")
        check_positive(self.sigma, "sigma")
        check_length(self.cap, "cap")

    def draw(self, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`num` lengths from 1 to the cap."""
        location = math.log(self.mean) - self.sigma**2 / 2
        drawn = rng.lognormal(location, self.sigma, size=num)
        # Clipped before it becomes an integer: a long tail may exceed what one can hold.
        return np.rint(np.clip(drawn, 1, self.cap)).astype(np.int64)


Lengths = Fixed | Uniform | LogNormal
SPELLINGS = "fixed:512, uniform:128:1024 or lognormal:600:0.8:2048 (mean, sigma, cap)"


def check_length(length: int, name: str) -> None:
    """A length in tokens."""
    if not 1 <= length <= MAX_TOKENS:
        raise ConfigError(f"{name} = {length}: a length is from 1 to {MAX_TOKENS} tokens")


def parse_lengths(text: str) -> Lengths:
    """A distribution as it is written on a command line."""
    kind, *fields = text.split(":")
    try:
        match kind, fields:
            case "fixed", [length]:
                return Fixed(length=int(length))
            case "uniform", [low, high]:
                return Uniform(low=int(low), high=int(high))
            case "lognormal", [mean, sigma, cap]:
                return LogNormal(mean=float(mean), sigma=float(sigma), cap=int(cap))
    except ValueError as problem:
        raise ConfigError(f"lengths {text!r}: {problem}; write {SPELLINGS}") from None
    raise ConfigError(f"lengths {text!r} are not known; write {SPELLINGS}")


def spell_lengths(lengths: Lengths) -> str:
    """The distribution as `parse_lengths` reads it."""
    match lengths:
        case Fixed():
            return f"fixed:{lengths.length}"
        case Uniform():
            return f"uniform:{lengths.low}:{lengths.high}"
        case LogNormal():
            return f"lognormal:{lengths.mean:g}:{lengths.sigma:g}:{lengths.cap}"
