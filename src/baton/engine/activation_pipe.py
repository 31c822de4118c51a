"""Rows on their way from one pipeline stage to the next, over a pipe of this host."""

import contextlib
import fcntl
import os
import struct
from typing import BinaryIO

import torch
from torch import Tensor

from baton.engine.plain import Activations
from baton.engine.pool import TORCH_DTYPES

_HEAD = struct.Struct("<q")
_FAILED = -1
_CAPACITY_NBYTES = 1 << 20


def open_pipe() -> tuple[int, int]:
    """(read end, write end), for two processes to inherit."""
    ends = os.pipe()
    with contextlib.suppress(OSError):  # the user's share of pipe memory is taken: less will do
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, _CAPACITY_NBYTES)
    return ends


class ActivationSink:
    """The sending end."""

    def __init__(self, fd: int) -> None:
        self._stream: BinaryIO = os.fdopen(fd, "wb", buffering=0)

    def send(self, flow: Activations) -> None:
        """Both tensors, rows first. Raises OSError when the next stage is gone."""
        assert flow.delta is not None, "a layer has run"
        self._write(_HEAD.pack(flow.x.shape[0]))
        for tensor in (flow.x, flow.delta):
            self._write(tensor.contiguous().view(torch.uint8).numpy().data.cast("B"))

    def fail(self) -> None:
        """There are no rows of this step: the next stage must not wait for them."""
        self._write(_HEAD.pack(_FAILED))

    def close(self) -> None:
        """The next stage sees the end."""
        self._stream.close()

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view.nbytes:
            view = view[self._stream.write(view) :]


class ActivationSource:
    """The receiving end; rows are `width` scalars of `dtype`."""

    def __init__(self, fd: int, width: int, dtype: str) -> None:
        self._stream: BinaryIO = os.fdopen(fd, "rb", buffering=0)
        self._width = width
        self._dtype = TORCH_DTYPES[dtype]

    def receive(self) -> Activations | None:
        """The rows of a step; None where the stage before failed.

        Raises EOFError when that stage is gone.
        """
        head = bytearray(_HEAD.size)
        self._fill(memoryview(head))
        (num_rows,) = _HEAD.unpack(head)
        if num_rows == _FAILED:
            return None
        return Activations(self._tensor(num_rows), self._tensor(num_rows))

    def close(self) -> None:
        """The stage before cannot send any more."""
        self._stream.close()

    def _tensor(self, num_rows: int) -> Tensor:
        tensor = torch.empty(num_rows, self._width, dtype=self._dtype)
        self._fill(tensor.view(torch.uint8).numpy().data.cast("B"))
        return tensor

    def _fill(self, view: memoryview) -> None:
        while view.nbytes:
            count = self._stream.readinto(view)  # type: ignore[attr-defined]
            if not count:
                raise EOFError("the stage before has ended")
            view = view[count:]
