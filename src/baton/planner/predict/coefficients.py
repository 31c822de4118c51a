"""Fitted efficiencies: a small file in the package, and where it came from."""

from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec

from baton.errors import ConfigError

_LEAST = 5e-3
"""An effect of less than half a percent is not kept."""


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute percentage errors over some rows."""

    num_rows: int
    ttft_median: float
    ttft_p90: float
    tpot_median: float
    tpot_p90: float


class Coefficients(msgspec.Struct, frozen=True, kw_only=True):
    """Logarithms of effects by name (`effects.effect_name`), and powers."""

    source: str
    """The measurements, and the command."""
    num_rows: int
    digest: str
    """Of the measured table."""
    accuracy: dict[str, Accuracy]
    """In the sample and across left-out parts of it."""
    effects: dict[str, float]


PHYSICS = Coefficients(
    source="physics alone, nothing fitted", num_rows=0, digest="", accuracy={}, effects={}
)
"""Operator times as measured and round numbers for the rest."""


@cache
def shipped() -> Coefficients:
    """What the package carries."""
    text = files("baton.planner.predict").joinpath("coefficients.json").read_bytes()
    return msgspec.json.decode(text, type=Coefficients)


def read_coefficients(path: Path) -> Coefficients:
    """Of `python -m baton.planner.predict.fit --out`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Coefficients)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{path}: {error}; give a file of `python -m baton.planner.predict.fit`"
        ) from error


def write_coefficients(path: Path, found: Coefficients) -> None:
    """Rounded, without effects that hardly differ from none, in order of name."""
    kept = {
        name: round(value, 4)
        for name, value in sorted(found.effects.items())
        if abs(value) >= _LEAST
    }
    rounded = msgspec.structs.replace(found, effects=kept)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(rounded), indent=1) + b"\n")
