"""A model and a system from what a person names: a measured profile brings both."""

from pathlib import Path

from baton.errors import ConfigError
from baton.hardware.model import find_model
from baton.hardware.model_shape import ModelShape
from baton.hardware.profile_predictor import THIS, ProfilePredictor
from baton.hardware.system import System, find_system


def find_both(
    model: str | None, system: str | None, profile: Path | None
) -> tuple[ModelShape, System]:
    """Raises ConfigError for unknown names, and for a missing one that no profile brings."""
    if profile is not None:
        measured = ProfilePredictor(profile)
        shape = measured.model if model is None else find_model(model)
        return shape, measured.system if system in (None, THIS) else find_system(str(system))
    if model is None:
        raise ConfigError("--model is missing: a name, or the path of a config.json")
    if system is None:
        raise ConfigError("--system is missing: a name, or the path of a YAML file")
    return find_model(model), find_system(system)
