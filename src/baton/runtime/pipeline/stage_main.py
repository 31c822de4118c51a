"""Entry of a stage's process: takes orders on standard input, lives until that closes."""

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from baton.engine.activation_pipe import ActivationSink, ActivationSource
from baton.engine.stage import StageEngine
from baton.errors import BatonError
from baton.runtime.dataplane import Arena
from baton.runtime.pipeline.orders import (
    Bind,
    Bound,
    LayerWritten,
    Load,
    Loaded,
    Loading,
    Order,
    Report,
    Run,
    Stepped,
    Unable,
    read_frame,
    write_frame,
)

_PR_SET_PDEATHSIG = 1


class Stage:
    """One loaded stage between its neighbours."""

    def __init__(self, load: Load, reports: BinaryIO) -> None:
        self._reports = reports
        self._engine = StageEngine.load(
            Path(load.model_path),
            config=load.model,
            block_size=load.block_size,
            threads=load.threads,
            stage=load.stage,
            pp_size=load.pp_size,
            field=load.field,
            progress=lambda phase, fraction: self._say(Loading(phase=phase, fraction=fraction)),
        )
        engine = self._engine
        self._source: ActivationSource | None = None
        self._sink: ActivationSink | None = None
        if load.source_fd >= 0:
            self._source = ActivationSource(load.source_fd, engine.hidden_size, load.model.dtype)
        if load.sink_fd >= 0:
            self._sink = ActivationSink(load.sink_fd)
        self._arena: Arena | None = None
        self._say(Loaded(info=engine.info, report=engine.report, min_rows=engine.min_rows))

    def perform(self, order: Order) -> None:
        """Do what the worker says and report."""
        match order:
            case Bind():
                self._arena = Arena.attach(order.arena)
                memory = self._arena.buffer.data
                self._engine.bind(memory, order.num_blocks, order.min_rows)
                self._say(Bound())
            case Run():
                self._say(self._step(order))
            case Load():
                raise BatonError("a stage is loaded once")

    def _step(self, order: Run) -> Stepped:
        flow = None
        if self._source is not None:
            flow = self._source.receive()
            if flow is None:
                self._abandon()
                return Stepped(error="the stage before failed")
        try:
            flow, sampled = self._engine.run(
                order.batch, flow, self._on_layer if order.report_layers else None
            )
        except (RuntimeError, MemoryError, ArithmeticError) as error:
            self._abandon()
            return Stepped(error=f"{type(error).__name__}: {error}")
        if self._sink is not None:
            self._sink.send(flow)
        return Stepped(sampled=sampled)

    def _abandon(self) -> None:
        if self._sink is not None:
            self._sink.fail()

    def _on_layer(self, layer: int) -> None:
        self._say(LayerWritten(layer=layer))

    def _say(self, report: Report) -> None:
        write_frame(self._reports, report)


def main() -> int:
    """Serve the worker that started this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's parent's to handle
    # However the worker ends, this process does too, be it stopped or in the middle of a step.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    reports = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not print between two frames
    orders = sys.stdin.buffer
    first = read_frame(orders)
    if not first:
        return 0
    try:
        stage = Stage(msgspec.msgpack.decode(first, type=Load), reports)
    except BatonError as error:
        write_frame(reports, Unable(error=str(error)))
        return 2
    try:
        while data := read_frame(orders):
            stage.perform(msgspec.msgpack.decode(data, type=Order))
    except (EOFError, BrokenPipeError):
        return 1  # a neighbour or the worker is gone, and the worker's life with it
    return 0


if __name__ == "__main__":
    sys.exit(main())
