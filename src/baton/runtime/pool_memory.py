"""The memory behind a worker's K/V pool: an arena, or one for each of its pipeline stages."""

from baton.core.remap.span import Span
from baton.engine.engine import Engine
from baton.engine.staging import Staging
from baton.runtime.dataplane import DataPlane, RegionDescriptor
from baton.runtime.dataplane.choice import create_arena
from baton.runtime.pipeline import PipelineEngine
from baton.runtime.regions import stage_layers
from baton.runtime.spec import WorkerSpec


class PoolMemory:
    """Creates the arenas and lets the engine write into them."""

    def __init__(self, spec: WorkerSpec, engine: Engine | PipelineEngine, num_blocks: int) -> None:
        self._layout = engine.info.layout
        self._num_blocks = num_blocks
        is_cut = self._layout.pp_size > 1
        self.arenas = [
            create_arena(
                spec.config, spec.worker_id, self._nbytes(layers), spec.epoch, is_shared=is_cut
            )
            for layers in stage_layers(self._layout)
        ]
        self.staging: Staging | None = None
        """Copies between a private pool and the arena, where they are two."""
        if isinstance(engine, PipelineEngine):
            engine.bind_arenas(self.arenas, num_blocks)
            return
        mirror = self.arenas[0].buffer[: num_blocks * self._layout.bytes_per_block].data
        if spec.config.transfer.staging == "always" or engine.info.device != "cpu":
            engine.bind_pool(None, num_blocks)
            self.staging = Staging(engine.pool, mirror)
        else:
            engine.bind_pool(mirror, num_blocks)

    def _nbytes(self, layers: Span) -> int:
        return self._num_blocks * layers.size * self._layout.layer_block_nbytes

    def register(self, plane: DataPlane) -> RegionDescriptor:
        """Offer all of it to peers."""
        return plane.register(self.arenas[0], stages=self.arenas[1:])

    def close(self) -> None:
        """Unmap and unlink it."""
        for arena in self.arenas:
            arena.close()
