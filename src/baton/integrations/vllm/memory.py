"""vLLM's cache memory as an arena of the data plane: blocks move whole, from where they lie."""

import contextlib
import ctypes
import mmap
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from baton.errors import ConfigError
from baton.integrations.vllm.messages import CacheMap
from baton.runtime.dataplane import Arena, ArenaDescriptor
from baton.runtime.dataplane.runs import Run


class LayerView(msgspec.Struct, frozen=True, kw_only=True):
    """One layer's cache tensor, without the tensor: `[num_blocks, ...]` by strides in bytes."""

    name: str
    address: int
    shape: tuple[int, ...]
    stride_nbytes: tuple[int, ...]
    item_nbytes: int

    @property
    def block_nbytes(self) -> int:
        """Bytes of one block; the axes behind the first must be dense."""
        count = self.item_nbytes
        for size in self.shape[1:]:
            count *= size
        return count

    @property
    def is_dense(self) -> bool:
        """Whether the bytes of one block lie side by side, in some order of its axes."""
        axes = sorted(
            (stride, size)
            for stride, size in zip(self.stride_nbytes[1:], self.shape[1:], strict=True)
            if size > 1
        )
        expected = self.item_nbytes
        for stride, size in axes:
            if stride != expected:
                return False
            expected *= size
        return True


class BorrowedArena(Arena):
    """Memory that somebody else allocated and keeps for the life of the process."""

    def __init__(self, worker_id: str, epoch: int, address: int, nbytes: int) -> None:
        self.descriptor = ArenaDescriptor(name="", nbytes=nbytes, worker_id=worker_id, epoch=epoch)
        view = (ctypes.c_uint8 * nbytes).from_address(address)
        self._buffer = np.ctypeslib.as_array(view)
        _advise_huge(address, nbytes)

    def close(self) -> None:
        """Nothing to give back."""
        self._buffer = None


def _advise_huge(address: int, nbytes: int) -> None:
    """Ask for huge pages: reaching another process's memory costs a look-up for each page."""
    start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (address + nbytes - start) // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError, AttributeError):
        if length > 0:
            libc = ctypes.CDLL(None)
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)


def cache_map(layers: Sequence[LayerView]) -> tuple[int, int, CacheMap]:
    """First address and size of the cache memory, and where its blocks lie within.

    Raises ConfigError for a cache whose blocks cannot move whole.
    """
    first = layers[0]
    for layer in layers:
        if not layer.is_dense or layer.shape != first.shape:
            raise ConfigError(
                f"layer {layer.name} has a cache of shape {layer.shape} and strides "
                f"{layer.stride_nbytes} bytes; every block must be dense and all layers alike"
            )
    base = min(layer.address for layer in layers)
    step = layers[1].address - first.address if len(layers) > 1 else first.block_nbytes
    for index, layer in enumerate(layers):
        if layer.address != first.address + index * step or step < 1:
            raise ConfigError(
                f"layer {layer.name} lies at {layer.address - base} bytes; layers must follow each "
                "other at one distance, in order"
            )
    block_stride = first.stride_nbytes[0]
    found = CacheMap(
        layer_stride_nbytes=step,
        block_stride_nbytes=block_stride,
        block_nbytes=first.block_nbytes,
        num_layers=len(layers),
        num_blocks=first.shape[0],
    )
    last = (len(layers) - 1) * step + (first.shape[0] - 1) * block_stride + first.block_nbytes
    return base, last, found


def offsets(cache: CacheMap, layers: range, block_ids: Sequence[int]) -> Iterator[int]:
    """Offsets of whole blocks, layer by layer, in the order in which both sides sum them."""
    for layer in layers:
        for block in block_ids:
            yield layer * cache.layer_stride_nbytes + block * cache.block_stride_nbytes


def put_runs(
    local: CacheMap,
    remote: CacheMap,
    layers: range,
    local_blocks: Sequence[int],
    remote_blocks: Sequence[int],
    pieces: Sequence[tuple[int, int, int]],
) -> tuple[Run, ...]:
    """The runs of a move: of every block those pieces, (offset here, offset there, bytes)."""
    return tuple(
        (here + own, there + other, nbytes)
        for here, there in zip(
            offsets(local, layers, local_blocks),
            offsets(remote, layers, remote_blocks),
            strict=True,
        )
        for own, other, nbytes in pieces
    )


def fits(cache: CacheMap, region_nbytes: int) -> bool:
    """Whether everything that a peer's map names lies inside its region."""
    sizes = (
        cache.layer_stride_nbytes,
        cache.block_stride_nbytes,
        cache.block_nbytes,
        cache.num_layers,
        cache.num_blocks,
    )
    last = (cache.num_layers - 1) * cache.layer_stride_nbytes
    last += (cache.num_blocks - 1) * cache.block_stride_nbytes + cache.block_nbytes
    return min(sizes) > 0 and last <= region_nbytes
