"""What every predictor of a step's time is, and which one a model and a system get."""

from pathlib import Path
from typing import NamedTuple, Protocol

from baton.hardware.curves import StepCurves
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.sources import BY_FORMULA, SOURCES, candidates, named
from baton.hardware.system import System

__all__ = ["Choice", "MissingCell", "Predictor", "choose_predictor", "find_predictor"]


class Predictor(Protocol):
    """Lowers one model on one system, cut so, to curves."""

    @property
    def name(self) -> str:
        """Of the source."""
        ...

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """Raises MissingCell where nothing was measured, or marks the curves extrapolated."""
        ...


class Choice(NamedTuple):
    """A predictor, and why it is this one."""

    predictor: Predictor
    reason: str
    passed_over: tuple[tuple[str, str], ...]
    """Better sources that have nothing here, and what they lack."""

    @property
    def warning(self) -> str:
        """To be said beside every figure that rests on it; empty where something was measured."""
        if self.predictor.name != BY_FORMULA:
            return ""
        return (
            "step times are the roofline's: bounds from data sheets, nothing of this model on this "
            "system was measured; name measurements with --data or BATON_DATA, or a --profile"
        )


def find_predictor(
    model: ModelShape,
    system: System,
    *,
    data: Path | None = None,
    profile: Path | None = None,
    name: str | None = None,
) -> Predictor:
    """The best source that has this model on this system, or the named one."""
    return choose_predictor(model, system, data=data, profile=profile, name=name).predictor


def choose_predictor(
    model: ModelShape,
    system: System,
    *,
    data: Path | None = None,
    profile: Path | None = None,
    name: str | None = None,
) -> Choice:
    """The same, with reasons. Raises MissingCell if the named source has nothing here, and
    ConfigError for a name that no source has.
    """
    if name is not None:
        one = named(name, model, system, data, profile)
        assert one.table is not None
        return Choice(one.table, f"asked for by name: {one.reason}", ())
    defaults = {source.name: source.is_default for source in SOURCES}
    passed: list[tuple[str, str]] = []
    for one in candidates(model, system, data, profile):
        if not defaults.get(one.name, True):
            continue
        if one.table is not None:
            return Choice(one.table, one.reason, tuple(passed))
        if profile is not None and one.name == "profile":
            raise MissingCell(f"--profile {profile}: {one.reason}")
        passed.append((one.name, one.reason))
    raise AssertionError("the roofline has everything")
