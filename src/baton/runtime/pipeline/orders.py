"""What a worker and its pipeline stages say to each other, in frames over a pair of pipes."""

import struct
from typing import BinaryIO

import msgspec

from baton.config import ModelConfig
from baton.core.layout import ModelInfo
from baton.core.work import Batch, Sampled
from baton.runtime.dataplane import ArenaDescriptor

_LENGTH = struct.Struct("<I")


class _Frame(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of everything that is said."""


class Load(_Frame, frozen=True, kw_only=True, tag=True):
    """The first order: what to load, and where activations come from and go to."""

    stage: int
    pp_size: int
    field: str
    """The configuration that asked for so many stages."""
    model_path: str
    model: ModelConfig
    block_size: int
    threads: int
    source_fd: int
    """Pipe from the stage before; -1 in the first."""
    sink_fd: int
    """Pipe to the next stage; -1 in the last."""


class Bind(_Frame, frozen=True, kw_only=True, tag=True):
    """Map the arena as the stage's pool; answered by Bound."""

    arena: ArenaDescriptor
    num_blocks: int
    min_rows: int


class Run(_Frame, frozen=True, kw_only=True, tag=True):
    """Run a step; answered by LayerWritten for each layer, if asked for, and by Stepped."""

    batch: Batch
    report_layers: bool


class Loading(_Frame, frozen=True, kw_only=True, tag=True):
    """How far the load is."""

    phase: str
    fraction: float


class Loaded(_Frame, frozen=True, kw_only=True, tag=True):
    """The stage stands; `min_rows` is the least that its linears compute."""

    info: ModelInfo
    report: str
    min_rows: int


class Unable(_Frame, frozen=True, kw_only=True, tag=True):
    """The stage cannot be had; the process ends."""

    error: str


class Bound(_Frame, frozen=True, kw_only=True, tag=True):
    """The pool is mapped."""


class LayerWritten(_Frame, frozen=True, kw_only=True, tag=True):
    """K/V of this step are final in that layer of the whole model."""

    layer: int


class Stepped(_Frame, frozen=True, kw_only=True, tag=True):
    """The step has passed this stage; the last one draws."""

    sampled: tuple[Sampled, ...] = ()
    error: str = ""


Order = Load | Bind | Run
Report = Loading | Loaded | Unable | Bound | LayerWritten | Stepped


def write_frame(stream: BinaryIO, frame: Order | Report) -> None:
    """Send one frame."""
    data = msgspec.msgpack.encode(frame)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes:
    """The next frame; empty at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return b""
    (nbytes,) = _LENGTH.unpack(head)
    data = stream.read(nbytes)
    return data if len(data) == nbytes else b""
