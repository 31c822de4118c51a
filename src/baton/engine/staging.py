"""Copies between a device pool and its mirror in shared host memory, block for block."""

from collections.abc import Sequence

import torch

from baton.engine.pool import TORCH_DTYPES, Pool


class Staging:
    """A host mirror of a pool that peers cannot reach: a device's, or any private one.

    The mirror has the pool's own geometry, so offsets of blocks are those of the pool. On CUDA the
    copies run on a stream of their own and wait for the layer's event, so they overlap compute.
    """

    def __init__(self, pool: Pool, buffer: memoryview) -> None:
        nbytes = pool.num_blocks * pool.layout.bytes_per_block
        assert buffer.nbytes >= nbytes and not buffer.readonly
        flat = torch.frombuffer(buffer, dtype=torch.uint8, count=nbytes)
        dtype = TORCH_DTYPES[pool.layout.dtype_k]
        self._mirror = flat.view(dtype).view(pool.tensor.shape)
        self._pool = pool
        self._cuda = pool.tensor.device.type == "cuda"
        if self._cuda:
            self._stream = torch.cuda.Stream(pool.tensor.device)  # type: ignore[no-untyped-call]
            _pin(self._mirror)

    def copy_out(self, layers: range, blocks: Sequence[int]) -> None:
        """Device to mirror; returns when the bytes are there."""
        self._copy(self._pool.tensor, self._mirror, layers, blocks)

    def copy_in(self, layers: range, blocks: Sequence[int]) -> None:
        """Mirror to device; returns when any stream of the device may read the bytes."""
        self._copy(self._mirror, self._pool.tensor, layers, blocks)

    def _copy(
        self, source: torch.Tensor, target: torch.Tensor, layers: range, blocks: Sequence[int]
    ) -> None:
        if not self._cuda:
            self._copy_runs(source, target, layers, blocks)
            return
        with torch.cuda.stream(self._stream):
            for layer in layers:
                event = self._pool.layer_events.get(layer)
                if event is not None:
                    self._stream.wait_event(event)
            self._copy_runs(source, target, layers, blocks)
        self._stream.synchronize()

    def _copy_runs(
        self, source: torch.Tensor, target: torch.Tensor, layers: range, blocks: Sequence[int]
    ) -> None:
        for layer in layers:
            for first, count in _runs(blocks):
                target[layer, first : first + count].copy_(
                    source[layer, first : first + count], non_blocking=True
                )


def _runs(blocks: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring block ids as (first, count)."""
    runs: list[tuple[int, int]] = []
    for block in blocks:
        if runs and runs[-1][0] + runs[-1][1] == block:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return runs


def _pin(mirror: torch.Tensor) -> None:
    """Page-lock the mirror so that copies are asynchronous; without it they are merely slower."""
    nbytes = mirror.numel() * mirror.element_size()
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    runtime.cudaHostRegister(mirror.data_ptr(), nbytes, 0)
