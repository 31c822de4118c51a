"""Layer timings of a data folder as one of the sources: systems by any of their names."""

from pathlib import Path

import msgspec

from baton.errors import ConfigError
from baton.hardware.curves import StepCurves
from baton.hardware.layers.files import find_folder
from baton.hardware.layers.predictor import LayersPredictor
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.system import System, system_names

FOLDER = "vllm-truth/layer-profiles"
_WIDTHS = (1, 2, 4, 8)


class LayerTable:
    """The folder's timings, composed by `LayersPredictor`."""

    name = "layers"

    def __init__(self, data: Path) -> None:
        self.root = data / FOLDER
        if not self.root.is_dir():
            raise ConfigError(f"{self.root}: no such folder; name the one that holds {FOLDER}")
        self._predictor = LayersPredictor(self.root)

    def lacks(self, model: ModelShape, system: System) -> str | None:
        """Why it has nothing for a model and system, or None."""
        if model.weight_nbytes_per_param != 2.0:
            return "it was measured with weights in 16 bits"
        try:
            self._name(model, system)
        except MissingCell as error:
            return str(error)
        return None

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """Raises MissingCell for a cut that was not measured."""
        if reason := self.lacks(model, system):
            raise MissingCell(f"{self.name}: {reason}")
        named = msgspec.structs.replace(system, name=self._name(model, system))
        return self._predictor.curves(model, named, parallel)

    def _name(self, model: ModelShape, system: System) -> str:
        """The one of the system's names under which its timings of the model lie."""
        known = [system.name, *system_names().get(system.name, [])]
        problem = MissingCell(f"{self.root}: nothing of {system.name}")
        for name in known:
            for tp in _WIDTHS:
                try:
                    find_folder(self.root, name, model, tp)
                    return name
                except MissingCell as error:
                    problem = error if name == system.name else problem
        raise problem
