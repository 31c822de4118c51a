"""One pipeline stage of a model: neighbouring layers, their weights and their part of the pool."""

from collections.abc import Callable
from pathlib import Path

import torch
from msgspec.structs import replace

from baton.config import ModelConfig
from baton.core.layout import ModelInfo
from baton.core.remap.partition import even_stages
from baton.core.work import Batch, Sampled
from baton.engine.architecture import describe, read_config
from baton.engine.engine import Engine
from baton.engine.plain import Activations, PlainForward
from baton.engine.pool import Pool
from baton.engine.sampling import sample
from baton.engine.step import plan
from baton.errors import ConfigError, LocalProtocolError, ModelRefused


class StageEngine:
    """Runs a stage's layers over rows that come from the stage before.

    The first stage embeds tokens, the last one draws. The same operations run on the same values in
    the same order as in a model of one piece, so no bit depends on where it is cut.
    """

    def __init__(self, engine: Engine, stage: int, pp_size: int) -> None:
        if not isinstance(engine.forward, PlainForward):
            raise ModelRefused(
                f"{engine.info.name}: only Llama, Mistral, Qwen2, Qwen3 and their equals run in "
                f"{pp_size} pipeline stages; use one"
            )
        whole = engine.info.layout
        sizes = even_stages(whole.num_layers, pp_size)
        first = sum(sizes[:stage])
        self.layers = range(first, first + sizes[stage])
        self.is_last = stage == pp_size - 1
        self.info: ModelInfo = replace(engine.info, layout=replace(whole, pp_size=pp_size))
        self.report = engine.deterministic_report
        self._layout = replace(whole, num_layers=sizes[stage])
        self._forward = engine.forward
        self._forward.keep(self.layers, num_layers=whole.num_layers)
        self._pool: Pool | None = None

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        config: ModelConfig,
        block_size: int,
        threads: int,
        stage: int,
        pp_size: int,
        field: str,
        progress: Callable[[str, float], None],
    ) -> "StageEngine":
        """Load and prove the whole model as `Engine.load` does, then keep this stage of it.

        `field` is the configuration that asked for `pp_size` stages. Raises what `Engine.load`
        raises, ConfigError where there are more stages than layers, and ModelRefused for a model
        that cannot be cut.
        """
        num_layers = describe(read_config(path)).num_layers
        if pp_size > num_layers:
            raise ConfigError(
                f"{field} {pp_size}: {config.name} has {num_layers} layers, and a pipeline stage "
                f"holds one at least; use {num_layers} or less"
            )
        engine = Engine.load(
            path, config=config, block_size=block_size, threads=threads, progress=progress
        )
        return cls(engine, stage, pp_size)

    @property
    def min_rows(self) -> int:
        """Least rows that this stage's linears compute."""
        return self._forward.min_rows

    @property
    def hidden_size(self) -> int:
        """Scalars of a row between two stages."""
        return self._forward.hidden_size

    def bind(self, buffer: memoryview, num_blocks: int, min_rows: int) -> None:
        """Use `buffer` as this stage's pool, and pad as all stages do."""
        self._forward.agree(min_rows)
        self._pool = Pool(self._layout, num_blocks, self.info.device, buffer)

    def run(
        self, batch: Batch, flow: Activations | None, on_layer: Callable[[int], None] | None
    ) -> tuple[Activations, tuple[Sampled, ...]]:
        """Run one step; returns rows for the next stage and, from the last one, what was drawn.

        `flow` is what the stage before returned, None for the first. `on_layer` gets layers of the
        whole model.
        """
        pool, forward, first = self._pool, self._forward, self.layers.start
        if pool is None:
            raise LocalProtocolError("bind first: the stage has no K/V pool")
        report = None if on_layer is None else lambda layer: on_layer(first + layer)
        with torch.inference_mode():
            for item in batch.items:
                if item.start < item.num_prompt_tokens <= item.end:
                    pool.zero_tail(item.block_table, item.num_prompt_tokens)
            step = plan(batch, self._layout.block_size, forward.pad, report)
            flow = forward.run_layers(step, pool, forward.begin(step) if flow is None else flow)
            if not self.is_last:
                return flow, ()
            asking = [item for item in batch.items if item.sample]
            return flow, sample(asking, forward.finish(step, flow), self.info.eos_token_ids)
