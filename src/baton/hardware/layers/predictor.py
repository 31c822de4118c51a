"""Predictor over a folder of layer timings."""

from pathlib import Path

from baton.hardware.curves import StepCurves
from baton.hardware.layers.collectives import Link
from baton.hardware.layers.compose import Composer
from baton.hardware.layers.cut import Cut
from baton.hardware.layers.files import find_folder
from baton.hardware.layers.profile import read_profile
from baton.hardware.layers.skew import Spread
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.system import System


class LayersPredictor:
    """Systems and models that the folder has; `spread` as the workload's lengths have it."""

    name = "layers"

    def __init__(self, root: Path, spread: Spread | None = None) -> None:
        self.root, self.spread = root, spread

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """Raises MissingCell that names what was measured."""
        if parallel.pp > 1:
            raise MissingCell(f"{self.root}: layer timings know no pipeline stages; ask for PP1")
        cut = Cut(tp=parallel.tp, is_expert_parallel=model.num_experts > 0 and parallel.tp > 1)
        link = Link(
            bytes_per_us=system.link_bytes_per_s(parallel.gpus) / 1e6, latency_us=system.link_us
        )
        return self.engine_curves(model, system.name, cut, link)

    def engine_curves(
        self, model: ModelShape, system_name: str, cut: Cut, link: Link
    ) -> StepCurves:
        """Of one rank of an engine with data and expert parallelism, on a given link."""
        folder = find_folder(self.root, system_name, model, cut.tp)
        return Composer(read_profile(folder), model, cut, link, self.spread).curves()
