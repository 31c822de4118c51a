"""What every predictor of a step's time is, and which one a model and a system get."""

from pathlib import Path
from typing import Protocol

from baton.errors import ConfigError
from baton.hardware.curves import StepCurves
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.system import System

__all__ = ["MissingCell", "Predictor", "find_predictor"]


class Predictor(Protocol):
    """Lowers one model on one system, cut so, to curves."""

    @property
    def name(self) -> str:
        """Of the source."""
        ...

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """Raises MissingCell where nothing was measured, or marks the curves extrapolated."""
        ...


def find_predictor(
    model: ModelShape,
    system: System,
    *,
    data: Path | None = None,
    profile: Path | None = None,
    name: str | None = None,
) -> Predictor:
    """The best source that has this model on this system, or the named one."""
    from baton.hardware.roofline import RooflinePredictor

    if name not in (None, "roofline"):
        raise ConfigError(f"predictor {name!r} is not known")
    return RooflinePredictor()
