"""The engine of a worker whose layers are spread over the processes of its pipeline stages."""

import os
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from baton.config import BatonConfig
from baton.core.ids import Role
from baton.core.layout import ModelInfo
from baton.core.work import Batch, BatchResult, Sampled
from baton.engine.activation_pipe import open_pipe
from baton.engine.pool import Pool, digest_pools
from baton.engine.step import check_item
from baton.errors import BatonError, LocalProtocolError
from baton.runtime.dataplane import Arena
from baton.runtime.pipeline.orders import (
    Bind,
    Bound,
    LayerWritten,
    Load,
    Loaded,
    Loading,
    Run,
    Stepped,
    Unable,
)
from baton.runtime.pipeline.stage_process import StageProcess
from baton.runtime.regions import stage_layers

Progress = Callable[[str, float], None]


class PipelineEngine:
    """Drives the stages one after another: while one computes, the others wait for its rows.

    So a pipeline is no quicker than one process; it serves layers that one device cannot hold. Each
    stage writes the K/V of its layers into an arena of its own, which this process maps too.
    """

    def __init__(self, stages: Sequence[StageProcess], loaded: Sequence[Loaded]) -> None:
        self.stages = stages
        first = loaded[0].info
        is_deterministic = all(one.info.deterministic for one in loaded)
        self.info: ModelInfo = replace(first, deterministic=is_deterministic)
        # All or none: a stage that is not deterministic makes the worker so.
        report = next((one.report for one in loaded if not one.info.deterministic), None)
        layers = " + ".join(str(span.size) for span in stage_layers(first.layout))
        self.deterministic_report = (
            f"{report or loaded[0].report}; {len(stages)} pipeline stages of {layers} layers"
        )
        self._min_rows = max(one.min_rows for one in loaded)
        self._pools: list[Pool] = []

    @classmethod
    def load(
        cls, config: BatonConfig, role: Role, model_path: str, progress: Progress
    ) -> "PipelineEngine":
        """Start the stages of a worker and wait until each has loaded.

        Raises BatonError with what a stage says, and EngineLost when one ends without a word.
        """
        stages = _start(config, role, model_path)
        try:
            return cls(stages, [_await_loaded(stage, progress) for stage in stages])
        except BaseException:
            for stage in stages:
                stage.close()
            raise

    def bind_arenas(self, arenas: Sequence[Arena], num_blocks: int) -> None:
        """Give each stage its memory; the caller keeps it alive."""
        layout = self.info.layout
        for stage, arena in zip(self.stages, arenas, strict=True):
            stage.send(Bind(arena=arena.descriptor, num_blocks=num_blocks, min_rows=self._min_rows))
        for stage in self.stages:
            report = stage.receive()
            if not isinstance(report, Bound):
                raise LocalProtocolError(f"stage {stage.stage} answered {report}, not Bound")
        self._pools = [
            Pool(
                replace(layout, num_layers=layers.size, pp_size=1),
                num_blocks,
                buffer=arena.buffer.data,
            )
            for arena, layers in zip(arenas, stage_layers(layout), strict=True)
        ]

    def unbind_pool(self) -> None:
        """Let go of the memory, so that its owner can close it."""
        self._pools = []

    def execute(self, batch: Batch, on_layer: Callable[[int], None] | None = None) -> BatchResult:
        """See `Engine.execute`. Raises EngineLost when a stage has ended."""
        info, begin = self.info, time.perf_counter()
        for item in batch.items:
            check_item(
                item,
                block_size=info.layout.block_size,
                num_blocks=self._pools[0].num_blocks,
                vocab_size=info.vocab_size,
                max_len=info.max_model_len,
            )
        order = Run(batch=batch, report_layers=on_layer is not None)
        for stage in self.stages:
            stage.send(order)
        steps = [_await_step(stage, on_layer) for stage in self.stages]
        sampled: tuple[Sampled, ...] = steps[-1].sampled
        duration_us = int((time.perf_counter() - begin) * 1e6)
        return BatchResult(
            batch_id=batch.batch_id,
            sampled=sampled,
            duration_us=duration_us,
            error=next((step.error for step in steps if step.error), ""),
        )

    def kv_digest(self, block_table: Sequence[int], num_tokens: int) -> str:
        """See `Engine.kv_digest`: that of the whole model, however it is cut."""
        return digest_pools(self._pools, block_table, num_tokens)

    def close(self) -> None:
        """End the stages."""
        for stage in self.stages:
            stage.close()


def _start(config: BatonConfig, role: Role, model_path: str) -> list[StageProcess]:
    field, pp_size = config.pp_field_of(role), config.pp_size_of(role)
    pipes = [open_pipe() for _ in range(pp_size - 1)]
    sources = [-1, *(read_end for read_end, _ in pipes)]
    sinks = [*(write_end for _, write_end in pipes), -1]
    stages: list[StageProcess] = []
    try:
        for stage, (source_fd, sink_fd) in enumerate(zip(sources, sinks, strict=True)):
            ends = [fd for fd in (source_fd, sink_fd) if fd >= 0]
            stages.append(StageProcess(stage, ends))
            stages[-1].send(
                Load(
                    stage=stage,
                    pp_size=pp_size,
                    field=field,
                    model_path=model_path,
                    model=config.model,
                    block_size=config.block_size_of(role),
                    threads=config.worker.threads,
                    source_fd=source_fd,
                    sink_fd=sink_fd,
                )
            )
    except BaseException:
        for started in stages:
            started.close()
        raise
    finally:
        # Each end belongs to one stage alone: its death must show at the other end.
        for fd in (fd for pipe in pipes for fd in pipe):
            os.close(fd)
    return stages


def _await_loaded(stage: StageProcess, progress: Progress) -> Loaded:
    while True:
        match stage.receive():
            case Loading(phase=phase, fraction=fraction):
                progress(phase if phase != "ready" else "load", min(fraction, 0.95))
            case Loaded() as loaded:
                return loaded
            case Unable(error=error):
                raise BatonError(error)
            case report:
                raise LocalProtocolError(f"stage {stage.stage} said {report} while it loads")


def _await_step(stage: StageProcess, on_layer: Callable[[int], None] | None) -> Stepped:
    while True:
        match stage.receive():
            case LayerWritten(layer=layer):
                if on_layer is not None:
                    on_layer(layer)
            case Stepped() as stepped:
                return stepped
            case report:
                raise LocalProtocolError(f"stage {stage.stage} said {report} in a step")
